#include "engine/device_setup.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "engine/kv_pool.h"

namespace choral::engine {
namespace {

using platform::Platform;
using platform::PlatformConfig;

constexpr std::string_view kOwnWorker = "worker";

PlatformConfig config_of(const EngineOptions& options, DType kv_dtype, const std::string& architecture, int threads) {
  return {.threads = threads,
          .max_num_seqs = options.max_num_seqs,
          .max_num_batched_tokens = options.max_num_batched_tokens,
          .max_model_len = options.max_model_len,
          .architecture = architecture,
          .dtype = options.dtype,
          .quantization = options.quantization,
          .kv_cache_dtype = std::string(dtype_name(kv_dtype)),
          .worker_cls = options.worker_cls,
          .scheduler = options.scheduling_policy,
          .custom_ops = options.custom_ops,
          .strict = options.strict};
}

// What the platform made of it, and a note of each change.
void take_config(const PlatformConfig& before, const PlatformConfig& after, EngineOptions& options,
                 std::vector<std::string>& notes) {
  const auto note = [&](std::string_view what, const auto& from, const auto& to) {
    if (from != to) notes.push_back(fmt::format("config: {} = {} (was {})", what, to, from));
  };
  note("worker_cls", before.worker_cls, after.worker_cls);
  note("scheduler", before.scheduler, after.scheduler);
  note("attention_backend", before.attention_backend, after.attention_backend);
  note("quantization", before.quantization, after.quantization);
  note("custom_ops", before.custom_ops, after.custom_ops);
  note("max_num_batched_tokens", before.max_num_batched_tokens, after.max_num_batched_tokens);
  options.scheduling_policy = after.scheduler;
  options.quantization = after.quantization;
  options.custom_ops = after.custom_ops;
  options.max_num_batched_tokens = after.max_num_batched_tokens;
  options.worker_cls = after.worker_cls;
}

// The registry of workers: this engine's own, whose steps every device can run, and the classes that the platform brings.
Status resolve_worker_cls(const Platform& platform, std::string& name) {
  if (name == "auto") name = kOwnWorker;
  auto known = platform.worker_classes();
  known.insert(known.begin(), std::string(kOwnWorker));
  if (std::find(known.begin(), known.end(), name) != known.end()) return {};
  return invalid_argument("no worker class is called '{}'; for device {} there are: {}", name, platform.name(),
                          fmt::join(known, ", "));
}

// Those of operators wait in the configuration for the session that they belong to. A patch lives as long as the worker.
Status adapt_patch(const Platform& platform, PlatformConfig& config, ModelForms& forms, std::vector<std::string>& notes) {
  for (const auto& patch : platform.patches()) {
    Status status;
    if (patch.registry == "op") {
      config.op_patches.push_back(patch);
    } else if (patch.registry == "custom_op") {
      status = forms.custom_ops.force(patch.key, patch.value);
    } else if (patch.registry == "fuse") {
      if (patch.value != "on" && patch.value != "off") status = invalid_argument("'{}' is neither on nor off", patch.value);
      if (status.ok()) status = forms.fusion.force(patch.key, patch.value == "on");
    } else {
      status = invalid_argument("there is no registry '{}'; there are op, custom_op and fuse", patch.registry);
    }
    CHORAL_RETURN_IF_ERROR(std::move(status).while_(fmt::format("patch {} of {}", patch.name, platform.name())));
    notes.push_back(fmt::format("patch {}: {} {} = {} ({})", patch.name, patch.registry, patch.key, patch.value, patch.reason));
  }
  return {};
}

Result<DeviceSetup> open_device(std::shared_ptr<const Platform> platform, EngineOptions& options, const std::string& architecture,
                                ThreadPool& pool) {
  DeviceSetup setup{.platform = std::move(platform), .session = nullptr, .forms = {}, .notes = {}};
  CHORAL_TRY(const DType kv_dtype, parse_kv_dtype(options.kv_cache_dtype));
  const PlatformConfig asked = config_of(options, kv_dtype, architecture, pool.size());
  PlatformConfig config = asked;
  CHORAL_RETURN_IF_ERROR(setup.platform->check_and_update_config(config));
  EngineOptions updated = options;
  take_config(asked, config, updated, setup.notes);
  CHORAL_RETURN_IF_ERROR(resolve_worker_cls(*setup.platform, config.worker_cls));
  setup.notes.push_back("worker: " + config.worker_cls);
  CHORAL_TRY(setup.forms.custom_ops, platform::CustomOpConfig::parse(updated.custom_ops));
  CHORAL_TRY(setup.forms.fusion, layers::FusionConfig::parse(updated.fuse));
  setup.forms.quantization = updated.quantization;
  setup.forms.schemes = setup.platform->scheme_overrides();
  for (const auto& [scheme, kind] : setup.forms.schemes.keys())
    setup.notes.push_back(fmt::format("scheme {} of {} layers: the platform's own", scheme, kind));
  setup.forms.strict = options.strict;
  if (options.layer_overrides != nullptr) setup.forms.overrides = *options.layer_overrides;
  for (const auto& layer : setup.forms.overrides.names())
    setup.notes.push_back(fmt::format("layer {}: its class is replaced", layer));
  CHORAL_RETURN_IF_ERROR(adapt_patch(*setup.platform, config, setup.forms, setup.notes));
  CHORAL_TRY(setup.session, setup.platform->open(pool, config));
  for (auto& note : setup.session->take_notes()) setup.notes.push_back(std::move(note));
  options = std::move(updated);
  return setup;
}

}  // namespace

Result<DeviceSetup> set_up_device(EngineOptions& options, const std::string& architecture, ThreadPool& pool, int place) {
  platform::PlatformChoice choice{.platform = options.platform, .reason = "brought by the program"};
  if (choice.platform == nullptr) {
    CHORAL_TRY(choice, platform::choose_platform(options.device, place));
  }
  const auto cpu = [&] { return choice.platform->name() == "cpu"; };
  std::vector<std::string> notes;
  for (const auto& passed : choice.passed) notes.push_back("device not used: " + passed);
  if (options.require_device && options.device == "auto" && cpu()) {
    return unavailable("--require-device: {}{}", choice.reason,
                       choice.passed.empty() ? "; see docs/plugins.md for where they are looked for"
                                             : fmt::format("; {}", fmt::join(choice.passed, "; ")));
  }
  if (options.strict && options.device == "auto" && !choice.passed.empty()) {
    return unavailable("--strict: {}; --device {} accepts that", fmt::join(choice.passed, "; "), choice.platform->name());
  }
  auto setup = open_device(choice.platform, options, architecture, pool);
  if (!setup.ok() && options.device == "auto" && !options.require_device && !options.strict && !cpu()) {
    notes.push_back(fmt::format("device {} gave way to the CPU: {}", choice.platform->name(), setup.status().message()));
    CHORAL_LOG(kWarn, "{}", notes.back());
    choice.reason = "the plug-in could not be used";
    CHORAL_TRY(const auto fallback, platform::choose_platform("cpu"));
    choice.platform = fallback.platform;
    setup = open_device(choice.platform, options, architecture, pool);
  }
  if (!setup.ok()) return setup;
  notes.insert(notes.begin(), fmt::format("device: {} ({}), {} threads; {}", choice.platform->name(), choice.reason, pool.size(),
                                          choice.platform->description()));
  setup->notes.insert(setup->notes.begin(), notes.begin(), notes.end());
  return setup;
}

}  // namespace choral::engine
