#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "engine/checkpoint_weights.h"
#include "engine/layer_forms.h"
#include "engine/memory_plan.h"
#include "engine/speculation/draft_loader.h"
#include "io/checkpoint.h"
#include "io/hub_cache.h"
#include "models/registry.h"
#include "text/chat_template.h"
#include "tools/doctor.h"

namespace choral::tools {
namespace {

constexpr const char* kFetchAgain = "fetch the files again; compare their sizes with the source's";

Status fail(DoctorReport& report, const char* subject, const Status& status, std::string cure) {
  report.wrong(subject, status.message(), std::move(cure));
  return status;
}

Status examine_weights(const io::Checkpoint& checkpoint, DoctorReport& report) {
  std::map<std::string, int64_t> formats;
  for (const auto& name : checkpoint.names()) {
    CHORAL_TRY(const auto tensor, checkpoint.find(name));
    formats[std::string(dtype_name(tensor.view.dtype))] += 1;
  }
  std::vector<std::string> parts;
  for (const auto& [format, count] : formats) parts.push_back(fmt::format("{} {}", count, format));
  report.fine("weights", fmt::format("{}; tensors: {}", checkpoint.description(), fmt::join(parts, ", ")));
  return {};
}

Status examine_memory(const EngineOptions& options, const platform::Context& ctx, const models::Model& model,
                      int64_t expected_bytes, DoctorReport& report) {
  CHORAL_TRY(const DType kv_dtype, engine::parse_kv_dtype(options.kv_cache_dtype));
  const auto draft = engine::plan_draft_memory(options);
  if (!draft.ok()) return fail(report, "draft model", draft.status(), "take another, or none");
  const engine::ModelSizes sizes = engine::sizes_of(model, expected_bytes, options);
  engine::expect_cache(sizes, kv_dtype, ctx.session);
  const auto plan = engine::plan_model_memory(sizes, options, ctx.session, kv_dtype, *draft);
  if (!plan.ok()) return fail(report, "memory budget", plan.status(), "free memory, or take a smaller or more quantised model");
  report.fine("memory budget", plan->text());
  return {};
}

// Of layers that differ only by their number the first is read and packed: the others are like it.
Status examine_layers(const EngineOptions& options, std::shared_ptr<const io::Checkpoint> checkpoint,
                      const platform::Context& ctx, const models::Model& model, DoctorReport& report) {
  const auto request = engine::parse_weight_request(options.dtype, options.activations);
  if (!request.ok()) return fail(report, "weights", request.status(), "see choral generate --help");
  engine::CheckpointWeights weights(std::move(checkpoint), *request);
  int64_t expected_bytes = 0;
  for (auto* module : model.modules()) {
    if (const Status found = module->load_weights(weights); !found.ok()) return fail(report, "weights", found, kFetchAgain);
    expected_bytes += module->expected_bytes(*request);
  }
  CHORAL_RETURN_IF_ERROR(examine_memory(options, ctx, model, expected_bytes, report));
  std::vector<layers::Module*> firsts;
  std::map<std::string, int> counts;
  for (auto* module : model.modules()) {
    if (!module->product_form(ctx.kernel.level) || counts[engine::without_numbers(module->prefix())]++ > 0) continue;
    const Status status = module->process_weights_after_loading(ctx, weights);
    if (!status.ok()) return fail(report, "weights", status, kFetchAgain);
    firsts.push_back(module);
  }
  for (const auto& row : engine::layer_forms(firsts, ctx.kernel.level)) {
    report.fine(fmt::format("{} × {}", counts[row.layers], row.layers),
                fmt::format("{}: {} ({})", row.scheme, row.kernel, row.why));
  }
  return {};
}

// `for_tools`: requests with tools get this one.
void examine_chat_template(const text::NamedTemplate& named, bool for_tools, DoctorReport& report) {
  const std::string title = named.name == "default" ? "chat template" : fmt::format("chat template '{}'", named.name);
  constexpr std::string_view kTool =
      R"([{"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}}])";
  const auto parsed = text::ChatTemplate::parse(named.source);
  if (!parsed.ok()) return report.wrong(title, parsed.status().message(), "give another with --chat-template FILE");
  const std::vector<ChatMessage> messages{{"user", "Hello"}};
  const std::string json = text::chat_messages_json(messages);
  const auto text = parsed->apply({.messages_json = json,
                                   .tools_json = named.name == "tool_use" ? kTool : std::string_view(),
                                   .kwargs_json = {},
                                   .special_tokens = {},
                                   .add_generation_prompt = true,
                                   .now_unix_s = std::nullopt});
  if (!text.ok()) return report.wrong(title, text.status().message(), "give another with --chat-template FILE");
  report.fine(title, fmt::format("{} bytes, renders", named.source.size()));
  if (!for_tools) return;
  if (parsed->mentions("tools")) return report.fine("tools", "the chat template shows them to the model");
  report.notice("tools", "the chat template does not show them to the model: the server describes them in the prompt",
                "say how the model writes calls with --tool-call-parser, or give another template with --chat-template FILE");
}

}  // namespace

// The model is built for the device, to see that it can be.
Status ExaminedDevice::examine_model(const EngineOptions& options, DoctorReport& report) {
  const auto path = io::resolve_model(options.model);
  if (!path.ok()) return fail(report, "model", path.status(), "check the name, or fetch it: choral pull org/name");
  report.fine("model", path->string());
  const auto fail_of_files = [&](const Status& status) {
    const bool is_missing = status.code() == Code::kNotFound;
    return fail(report, "files", status,
                is_missing ? "a folder needs config.json, tokenizer.json and *.safetensors, or is a GGUF" : "");
  };
  const auto config = engine::open_model_config(options);
  if (!config.ok()) return fail_of_files(config.status());
  std::string name = engine::architecture_of(config->config);
  if (name.empty()) name = "unknown";
  const auto known = models::known_architectures();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    report.wrong("architecture", name, fmt::format("this version knows {}", fmt::join(known, ", ")));
    return unsupported("{} is an architecture that this version does not know", name);
  }
  report.fine("architecture", name);
  const auto checkpoint = io::Checkpoint::open(config->location);
  const auto built = engine::build_model(config->config, *device_.session, device_.forms, [&](const std::string& tensor) {
    return checkpoint.ok() && (*checkpoint)->contains(tensor);
  });
  if (!built.ok()) return fail(report, "configuration", built.status(), "fetch config.json again, or take another model");
  if (!checkpoint.ok()) {
    if (checkpoint.status().code() != Code::kNotFound) return fail(report, "weights", checkpoint.status(), kFetchAgain);
    report.fine("configuration", "can be served; this is what config.json says by itself");
    return fail(report, "weights", checkpoint.status(), "fetch the rest: choral pull org/name");
  }
  for (const auto& note : built->notes) report.notice("weights", note, "");
  const auto files = engine::open_model_files(options);
  if (!files.ok()) return fail_of_files(files.status());
  report.fine("tokenizer", fmt::format("{} tokens", files->tokenizer->vocab_size()));
  if (!options.draft_model.empty()) {
    if (const auto draft = engine::open_draft(options, *files); !draft.ok())
      return fail(report, "draft model", draft.status(), "a smaller model of the same family has the same tokenizer");
  }
  CHORAL_RETURN_IF_ERROR(examine_weights(**checkpoint, report));
  EngineOptions settled = options;
  engine::settle_kv_dtype(*files, settled);
  CHORAL_RETURN_IF_ERROR(examine_layers(settled, *checkpoint, context_, *built->model, report));
  if (files->chat_templates.empty()) {
    report.notice("chat template", "none: `chat` and `messages` are refused", "give one with --chat-template FILE");
  }
  std::vector<std::string_view> names;
  for (const auto& named : files->chat_templates) names.push_back(named.name);
  const auto for_tools = text::choose_chat_template(names, /*has_tools=*/true);
  for (const auto& named : files->chat_templates)
    examine_chat_template(named, for_tools.ok() && *for_tools == named.name, report);
  return {};
}

}  // namespace choral::tools
