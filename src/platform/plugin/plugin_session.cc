#include "platform/plugin/plugin_session.h"

#include <algorithm>

#include "base/log.h"
#include "base/nearest_name.h"
#include "platform/custom_op.h"
#include "platform/host_view.h"
#include "platform/plugin/conformance.h"
#include "platform/plugin/plugin_host.h"
#include "platform/plugin/plugin_ops.h"

namespace choral::platform {
namespace {

// The operator of this name that a plug-in may bring.
std::optional<OpId> find_op(std::string_view name) {
  const auto op = AllOps::find(name);
  return op && AllOps::describe(*op).has_oot_form ? op : std::nullopt;
}

bool is_fused(OpId op) { return AllOps::describe(op).fused; }

// The operator that a CustomOp of this name is.
std::optional<OpId> op_of_custom(std::string_view name) {
  if (name == "gelu_and_mul") return kOpId<ops::GeluTanhAndMul>;
  if (name == "rms_norm" || name == "silu_and_mul" || name == "rotary_embedding") return find_op(name);
  return std::nullopt;
}

size_t at(OpId op) { return static_cast<size_t>(op); }

std::string_view name_of(OpId op) { return AllOps::describe(op).name; }

kernels::PackSpec with_x_in_full(kernels::PackSpec weight) {
  weight.activations = kernels::Activations::kFull;
  return weight;
}

}  // namespace

PluginSession::PluginSession(const Platform& platform, std::shared_ptr<PluginDevice> device)
    : platform_(platform),
      device_(std::move(device)),
      memory_([this](size_t size_bytes) -> Result<Arena::Block> {
        auto memory = device_->allocate(static_cast<int64_t>(size_bytes));
        no_memory_ = memory.ok() ? Status() : memory.status();
        if (!memory.ok()) return std::move(memory).status();
        return Arena::Block{std::move(memory->owner), memory->data, size_bytes};
      }),
      ops_(staged_cpu_ops()) {
  const std::string why = device_name() + " has no such operator";
  AllOps::for_each([&]<class D>(D) {
    if constexpr (HasOotForm<D>) {
      ops_.get<D>().reason = why;
    } else {
      ops_.get<D>().reason = D::kHostsOwn;
    }
  });
}

PluginSession::~PluginSession() {
  if (worker_ != nullptr && worker_->on_stop != nullptr) device_->call(worker_->on_stop);
}

Result<std::unique_ptr<Session>> PluginSession::open(const Platform& platform, std::shared_ptr<const PluginLibrary> plugin,
                                                     const PluginProbe& probe, ThreadPool& pool, const PlatformConfig& config) {
  CHORAL_TRY(auto device, PluginDevice::open(std::move(plugin), probe, pool, platform.device().index));
  std::unique_ptr<PluginSession> session(new PluginSession(platform, std::move(device)));
  // In the order in which workers of this kind are known to need it: patches, which the rest obeys; names of fused operators, so
  // that lookups find them; overrides; the operators themselves.
  CHORAL_RETURN_IF_ERROR(session->check_patches(config.op_patches));
  session->register_dummy_fusion_op();
  CHORAL_RETURN_IF_ERROR(session->declare_custom_ops());
  CHORAL_RETURN_IF_ERROR(session->declare_ops(config));
  CHORAL_RETURN_IF_ERROR(session->conform(pool));
  session->serve_kv_in_pairs(config);
  session->serve_stacks_together();
  CHORAL_RETURN_IF_ERROR(session->find_worker(config.worker_cls));
  session->strict_ = config.strict;
  if (config.strict) CHORAL_RETURN_IF_ERROR(session->refuse_fallbacks());
  return std::unique_ptr<Session>(std::move(session));
}

// What is the host's own on every device is no fallback, nor are adapters: they are the host's where a device does not bring
// them.
Status PluginSession::refuse_fallbacks() const {
  std::string list;
  AllOps::for_each([&]<class D>(D) {
    const auto& op = ops_.get<D>();
    const bool hosts = op.provider == staged_cpu_ops().add.provider || op.provider == staged_native_ops().add.provider;
    if (!HasOotForm<D> || D::kOnStacks || !hosts) return;
    list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", op.name, op.reason);
  });
  if (list.empty()) return {};
  return unsupported("--strict: these operators would be the CPU's: {}", list);
}

Status PluginSession::check_patches(const std::vector<Patch>& patches) const {
  for (const auto& patch : patches) {
    const auto op = find_op(patch.key);
    Status status;
    if (!op) {
      status = invalid_argument("no operator is called '{}'", patch.key);
    } else if (patch.value != "cpu" && patch.value != "native" && patch.value != device_name()) {
      status = invalid_argument("it has no provider '{}'; there are cpu, native and {}", patch.value, device_name());
    } else if (is_fused(*op)) {
      status = unsupported("it stands for other operators: patch these, or build models without it by registry fuse");
    } else if (AllOps::describe(*op).on_cache) {
      status = unsupported("the cache's operators move together: attention_backend = host");
    }
    CHORAL_RETURN_IF_ERROR(std::move(status).while_(fmt::format("patch {}: op {}", patch.name, patch.key)));
  }
  return {};
}

void PluginSession::register_dummy_fusion_op() {
  std::string names;
  for (const auto& name : device_->plugin().fused_op_names) {
    const auto op = find_op(name);
    if (!op || !is_fused(*op)) {
      notes_.push_back(fmt::format("{}: fused operator '{}' is not known to this host and not used", device_name(), name));
      continue;
    }
    install_plugin_op(ops_, *op, OpSet::kTable, device_name(), "its library loads at the first forward pass");
    names += (names.empty() ? "" : ", ") + name;
  }
  if (names.empty()) return;
  fused_ = Fused::kDeclared;
  notes_.push_back(fmt::format("{}: fused operators declared: {}", device_name(), names));
}

Status PluginSession::declare_custom_ops() {
  for (const auto& given : device_->plugin().custom_ops) {
    CHORAL_RETURN_IF_ERROR(check_custom_op_name(given.name).while_("plug-in " + device_name()));
    const auto op = op_of_custom(given.name);
    if (!op)
      return unsupported("plug-in {}: CustomOp '{}' can't be overridden through the plug-in interface", device_name(),
                         given.name);
    functions_[static_cast<size_t>(OpSet::kCustom)][at(*op)] = given.run;
    install_plugin_op(custom_, *op, OpSet::kCustom, device_name(), "");
    notes_.push_back(fmt::format("{}: CustomOp {} overridden", device_name(), given.name));
  }
  return {};
}

Status PluginSession::supports(OpId op, const PlatformConfig& config) {
  const auto& lib = device_->plugin();
  if (lib.api.supports_op == nullptr) return {};
  const auto kv = parse_dtype(config.kv_cache_dtype);
  for (const int64_t rows : {int64_t{1}, int64_t{512}}) {
    auto query = with_header<choral_op_query>();
    query.name = name_of(op).data();
    query.version = AllOps::describe(op).version;
    query.kv_dtype = kv.ok() ? static_cast<int32_t>(*kv) : CHORAL_F32;
    query.rows = rows;
    auto answer = with_header<choral_support>();
    CHORAL_RETURN_IF_ERROR(take_status(device_->call(lib.api.supports_op, &query, &answer)));
    if (answer.verdict == CHORAL_YES) continue;
    return unsupported("{} for {}: {}", answer.verdict == CHORAL_SLOW ? "the host is faster" : "not served",
                       rows == 1 ? "decode" : "prefill", plugin_text(answer.reason, sizeof answer.reason));
  }
  return {};
}

Status PluginSession::declare_ops(const PlatformConfig& config) {
  for (const auto& given : device_->plugin().ops) {
    const auto op = find_op(given.name);
    if (!op) {
      notes_.push_back(
          fmt::format("{}: operator '{}' is not known to this host and not used", device_name(), plugin_text(given.name)));
      continue;
    }
    if (const int version = AllOps::describe(*op).version; given.version != version) {
      withdraw(*op, OpSet::kTable, fmt::format("it has version {} of it, this host version {}", given.version, version));
      continue;
    }
    functions_[static_cast<size_t>(OpSet::kTable)][at(*op)] = given.run;
    install_plugin_op(ops_, *op, OpSet::kTable, device_name(), "");
    if (const auto answer = supports(*op, config); !answer.ok()) withdraw(*op, OpSet::kTable, answer.message());
  }
  for (const auto& patch : config.op_patches) {
    if (patch.value == device_name()) continue;
    const OpId op = *find_op(patch.key);
    const std::string why = fmt::format("patch {}: {}", patch.name, patch.reason);
    if (serves(op)) withdraw(op, OpSet::kTable, why);
    const OpTable& hosts = patch.value == "native" ? staged_native_ops() : staged_cpu_ops();
    AllOps::at(op, [&]<class D>(D) { ops_.get<D>().serve(hosts.get<D>().run, hosts.get<D>().provider, why); });
  }
  const bool packs = device_->plugin().has_weights;
  for (const OpId op : {kOpId<ops::Matmul>, kOpId<ops::GatherRows>}) {
    if (!packs && serves(op)) withdraw(op, OpSet::kTable, "it does not pack weights");
  }
  return {};
}

Status PluginSession::conform(ThreadPool& pool) {
  const Context ctx(*this, pool, cpu_level());
  kv_on_device_ = serves(kOpId<ops::WriteKv>) && serves(kOpId<ops::PagedAttention>);
  for (const OpSet set : {OpSet::kTable, OpSet::kCustom}) {
    for (size_t i = 0; i < AllOps::kSize; ++i) {
      const auto op = static_cast<OpId>(i);
      if (functions_[static_cast<size_t>(set)][i] == nullptr) continue;
      if (AllOps::describe(op).on_cache && !kv_on_device_) continue;
      const auto status = try_op(ctx, op, set);
      if (!lost_.ok()) return std::move(lost_).while_(fmt::format("{}: {}", device_name(), name_of(op)));
      if (!status.ok()) withdraw(op, set, status.message());
    }
  }
  memory_.reset();
  scratch_.reset();
  return {};
}

Status PluginSession::try_op(const Context& ctx, OpId op, OpSet set) {
  trying_ = true;
  auto status = check_conformance(ctx, op, set == OpSet::kTable ? ops_ : custom_);
  trying_ = false;
  return status;
}

Status PluginSession::computes_adapters() const {
  Status missing;
  AllOps::for_each([&]<class D>(D) {
    if (!D::kOnStacks || D::kFused || serves(kOpId<D>) || !missing.ok()) return;
    missing = unsupported("{} does not serve {}: {}", device_name(), D::kName, ops_.get<D>().reason);
  });
  return missing;
}

bool PluginSession::is_named_for(OpId op) const {
  bool named = false;
  AllOps::at(op, [&]<class D>(D) { named = ops_.get<D>().provider == device_name(); });
  return named;
}

// A layer calls all of them for an adapter, so a device without one of them needs none, and the fused ones neither.
void PluginSession::serve_stacks_together() {
  const Status missing = computes_adapters();
  if (missing.ok()) return;
  AllOps::for_each([&]<class D>(D) {
    if (D::kOnStacks && is_named_for(kOpId<D>)) withdraw(kOpId<D>, OpSet::kTable, missing.message());
  });
}

Status PluginSession::find_worker(const std::string& name) {
  for (const auto& worker : device_->plugin().workers) {
    if (name == worker.name) worker_ = &worker;
  }
  if (worker_ != nullptr && worker_->on_start != nullptr) {
    CHORAL_RETURN_IF_ERROR(take_status(device_->call(worker_->on_start)).while_("worker " + name));
  }
  return {};
}

void PluginSession::withdraw(OpId op, OpSet set, std::string_view why) {
  functions_[static_cast<size_t>(set)][at(op)] = nullptr;
  if (set == OpSet::kTable) {
    withdraw_plugin_op(ops_, op, why);
  } else {
    withdraw_plugin_op(custom_, op, why);
  }
  notes_.push_back(
      fmt::format("{}: {} is served by {}: {}", device_name(), name_of(op), is_fused(op) ? "its composition" : "the CPU", why));
  CHORAL_LOG(kWarn, "{}", notes_.back());
  if (strict_) fail(unsupported("--strict: {}", why).while_(name_of(op)));
}

bool PluginSession::call(OpSet set, OpId op, const void* args) {
  const auto function = functions_[static_cast<size_t>(set)][at(op)];
  if (!lost_.ok()) return true;  // nothing of this step will be used
  if (function == nullptr) return false;
  queued_ = true;
  choral_status* status = device_->call(function, device_->stream(), args);
  if (status == nullptr) [[likely]] {
    if (finish_each_) fail(device_->synchronize().while_(name_of(op)));
    return true;
  }
  Status failed = take_status(status);
  if (trying_) {
    refusal_ = std::move(failed);
    return true;
  }
  if (ends_step(op, failed)) return true;
  withdraw(op, set, fmt::format("it failed: {}", failed.message()));
  return false;
}

void PluginSession::must_call(OpId op, const void* args) {
  const auto function = functions_[static_cast<size_t>(OpSet::kTable)][at(op)];
  if (function == nullptr || !lost_.ok()) return;
  queued_ = true;
  Status status = take_status(device_->call(function, device_->stream(), args));
  if (trying_ && !status.ok()) {
    refusal_ = std::move(status);
    return;
  }
  if (!ends_step(op, status)) fail(std::move(status).while_(name_of(op)));
  if (finish_each_) fail(device_->synchronize().while_(name_of(op)));
}

// Of an operator's error: whether nobody else can do better. A device that is gone takes the step with it, and the next ones;
// one that has no memory for the operator's own ends this step alone.
bool PluginSession::ends_step(OpId op, const Status& failed) {
  if (failed.code() == Code::kUnavailable) fail(Status(failed).while_(name_of(op)));
  if (failed.code() == Code::kResourceExhausted && no_memory_.ok()) no_memory_ = Status(failed).while_(name_of(op));
  return failed.code() == Code::kUnavailable || failed.code() == Code::kResourceExhausted;
}

bool PluginSession::enable_custom_op(const Context& ctx) {
  if (fused_ != Fused::kDeclared) return fused_ == Fused::kLoaded;
  const choral_op* first = nullptr;
  int64_t count = 0;
  Status status = take_status(device_->call(device_->plugin().api.load_fused_ops, &first, &count));
  std::vector<choral_op> loaded;
  if (status.ok()) {
    auto ops = read_ops(first, count, "load_fused_ops");
    if (ops.ok()) {
      loaded = std::move(*ops);
    } else {
      status = std::move(ops).status();
    }
  }
  fused_ = status.ok() ? Fused::kLoaded : Fused::kFailed;
  std::string names;
  for (const auto& name : device_->plugin().fused_op_names) {
    const auto op = find_op(name);
    if (!op || !is_fused(*op) || !is_named_for(*op)) continue;  // unknown, or left to the host since
    const auto given = std::find_if(loaded.begin(), loaded.end(), [&](const auto& one) { return name == one.name; });
    if (given == loaded.end() || given->version != AllOps::describe(*op).version) {
      withdraw(*op, OpSet::kTable, status.ok() ? "its fused library does not have it" : status.message());
      continue;
    }
    functions_[static_cast<size_t>(OpSet::kTable)][at(*op)] = given->run;
    install_plugin_op(ops_, *op, OpSet::kTable, device_name(), "");
    if (const auto conforms = try_op(ctx, *op, OpSet::kTable); !conforms.ok()) {
      withdraw(*op, OpSet::kTable, conforms.message());
      continue;
    }
    names += (names.empty() ? "" : ", ") + name;
  }
  if (!names.empty()) notes_.push_back(fmt::format("{}: fused operators loaded: {}", device_name(), names));
  return fused_ == Fused::kLoaded;
}

void PluginSession::fail(Status status) {
  if (!lost_.ok() || status.ok()) return;
  lost_ = std::move(status).while_(device_name());
  notes_.push_back("device lost: " + lost_.message());
  CHORAL_LOG(kError, "{}", notes_.back());
}

// What a weight of this form is answered with: why the device does not multiply it so, or an error that ends the load.
Status PluginSession::try_form(const Context& ctx, const kernels::PackSpec& weight) {
  const WeightForm form = WeightForm::of(weight);
  if (is_tried_with_matmul(form)) return {};
  for (const auto& [tried, status] : forms_) {
    if (tried == form) return status;
  }
  trying_ = true;
  Status status = check_weight_form(ctx, form, ops_);
  trying_ = false;
  if (!lost_.ok()) return lost_;
  if (status.code() == Code::kInternal) status = unsupported("{}", status.message());
  forms_.emplace_back(form, status);
  return status;
}

Result<std::unique_ptr<kernels::PackedMatrix>> PluginSession::pack_on_device(const kernels::PackSpec& weight) {
  if (!serves(kOpId<ops::Matmul>)) return unsupported("its matmul is not used");
  queued_ = true;
  return PluginMatrix::pack(device_, weight);
}

Result<std::unique_ptr<kernels::PackedMatrix>> PluginSession::prepack(const Context& ctx, const kernels::PackSpec& weight) {
  const bool rounds_x = weight.activations == kernels::Activations::k16Bits;
  if (rounds_x && weight.format == DType::kF32) return prepack(ctx, with_x_in_full(weight));
  if (serves(kOpId<ops::Matmul>)) {
    Status refused = try_form(ctx, weight);
    if (refused.ok()) {
      auto packed = pack_on_device(weight);
      if (packed.ok()) return packed;
      refused = std::move(packed).status();
    }
    if (refused.code() != Code::kUnsupported) return std::move(refused).while_(device_name());
    CHORAL_RETURN_IF_ERROR(fall_back(fmt::format("{}: {} weights {}: {}", device_name(), dtype_name(weight.format),
                                                 rounds_x ? "meet x in full" : "stay with the CPU", refused.message())));
    if (rounds_x) return prepack(ctx, with_x_in_full(weight));
  }
  return kernels::pack_weight(weight, ctx.kernel.pool);
}

Status PluginSession::fall_back(std::string note) {
  if (strict_) return unsupported("--strict: {}", note);
  if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(std::move(note));
  return {};
}

choral_step PluginSession::step_of(const StepFacts& facts) const {
  auto step = with_header<choral_step>();
  step.index = facts.index;
  step.rows = facts.rows;
  step.sequences = facts.sequences;
  step.has_prefill = facts.has_prefill ? 1 : 0;
  step.has_adapters = facts.has_adapters ? 1 : 0;
  return step;
}

// Between steps the host is at work itself, and must not be interrupted.
void PluginSession::about_to_wait() {
  if (in_step_ && before_wait_) before_wait_();
}

void PluginSession::begin_step(const StepFacts& facts) {
  in_step_ = true;
  if (worker_ == nullptr || worker_->begin_step == nullptr || !lost_.ok()) return;
  const auto step = step_of(facts);
  queued_ = true;
  fail(take_status(device_->call(worker_->begin_step, device_->stream(), &step)).while_("begin_step"));
}

Status PluginSession::end_step(const StepFacts& facts) {
  if (lost_.ok() && worker_ != nullptr && worker_->end_step != nullptr) {
    const auto step = step_of(facts);
    fail(take_status(device_->call(worker_->end_step, device_->stream(), &step)).while_("end_step"));
  }
  about_to_wait();
  in_step_ = false;
  if (lost_.ok()) fail(device_->synchronize().while_("synchronize"));
  queued_ = false;
  const Status refused = std::exchange(no_memory_, {});
  if (!lost_.ok() || refused.ok()) return lost_;
  return resource_exhausted("{}: {}", device_name(), refused.message());
}

std::vector<std::string> PluginSession::take_notes() { return std::exchange(notes_, {}); }

}  // namespace choral::platform
