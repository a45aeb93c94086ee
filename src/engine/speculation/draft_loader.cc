#include "engine/speculation/draft_loader.h"

#include <algorithm>

#include "base/size_text.h"
#include "engine/adapters/adapter_version.h"
#include "engine/checkpoint_weights.h"
#include "engine/speculation/speculation_choice.h"
#include "lora/store/packed_adapter_loader.h"

namespace choral::engine {
namespace {

constexpr int64_t kMostForKv = int64_t{1} << 30;
constexpr int kRowsToRead = 512;  // rows of a step beside those that guess

// The engine's, where they are not another model's business.
Result<EngineOptions> options_of_draft(const EngineOptions& options) {
  CHORAL_TRY(auto choice, speculation_choice(options));
  EngineOptions draft = options;
  draft.model = std::move(choice.draft_model);
  draft.tokenizer.clear();
  draft.dtype = "auto";
  draft.quantization = options.draft_quantization;
  draft.layer_overrides = nullptr;
  draft.max_model_len = 0;
  draft.max_num_batched_tokens = 2 * options.max_num_seqs + kRowsToRead;
  draft.kv_cache_bytes = options.kv_cache_bytes > 0 ? std::max<int64_t>(options.kv_cache_bytes / 4, 1)
                                                    : std::min(machine_memory().free_bytes / 16, kMostForKv);
  draft.speculative = "off";
  draft.draft_model.clear();
  draft.draft_quantization = "auto";
  draft.draft_adapters.clear();
  draft.adapters.clear();
  draft.adapter_root.clear();
  draft.on_progress = {};
  if (options.on_progress) {
    draft.on_progress = [told = options.on_progress](const LoadProgress& progress) {
      if (progress.phase != "memory") told(progress);  // which is told with the other model's
    };
  }
  return draft;
}

std::string flag_of(const EngineOptions& draft) { return fmt::format("--draft-model {}", draft.model); }

Status check_can_guess(const ExecutorFacts& facts) {
  if (facts.head.kind != models::HeadKind::kTokens || facts.sees_later)
    return unsupported("it gives no tokens one after another");
  if (facts.kv_pool.state_slots > 0)
    return unsupported("it keeps states, which have no way back from a wrong guess; take a model whose layers all have keys");
  return {};
}

// Packed on the host, by a session of its own.
Status load_adapters(const EngineOptions& options, const ModelFiles& files, LoadedDraft& draft) {
  if (options.draft_adapters.empty()) return {};
  Worker& worker = draft.executor->worker();
  const ExecutorFacts& facts = draft.executor->facts();
  CHORAL_TRY(const auto session, platform::cpu_platform().open(*worker.pool(), {}));
  const platform::Context ctx(*session, *worker.pool(), facts.cpu_level);
  lora::PackedAdapterLoader loader(ctx, facts.lora_targets,
                                   {.config = facts.lora_config,
                                    .head_dim = facts.head_dim,
                                    .base_class = architecture_of(files.config),
                                    .base_names = files.base_names,
                                    .strict = options.strict},
                                   /*budget_bytes=*/0);
  for (const AdapterSpec& spec : options.draft_adapters) {
    const std::string where = fmt::format("--draft-lora {}", spec.name);
    lora::AdapterDescription described;
    ctx.memory.reset();
    auto packed = loader.load(AdapterVersion::source_of(spec), described, [](int64_t) { return Status(); });
    if (!packed.ok()) return std::move(packed).status().while_(where);
    draft.memory.bytes += (*packed)->size_bytes();
    draft.memory.taken_bytes += (*packed)->size_bytes();
    const lora::AdapterKey key(static_cast<int32_t>(draft.adapters.size()) + 1);
    if (!draft.adapters.emplace(spec.name, key).second) return invalid_argument("{}: the name is given twice", where);
    CHORAL_TRY(const auto readiness, draft.executor->add_adapter(key, {{*packed, 1.0F}}).while_(where));
    if (readiness != lora::Readiness::kReady) return unsupported("{}: this device takes adapters beside its steps", where);
    for (const auto& note : described.notes) draft.notes.push_back(fmt::format("draft adapter '{}': {}", spec.name, note));
    const auto is_its = [&](const AdapterSpec& adapter) { return adapter.name == spec.name; };
    if (std::none_of(options.adapters.begin(), options.adapters.end(), is_its))
      draft.notes.push_back(fmt::format("draft adapter '{0}': waits for an adapter '{0}', which was not given yet", spec.name));
  }
  return {};
}

}  // namespace

Status check_same_tokens(const text::Tokenizer& model, const text::Tokenizer& draft) {
  const int32_t ids = std::max(model.vocab_size(), draft.vocab_size());
  for (int32_t id = 0; id < ids; ++id) {
    const auto one = model.id_to_token(id), other = draft.id_to_token(id);
    if (one == other || (!one && draft.is_unused(id)) || (!other && model.is_unused(id))) continue;
    const auto shown = [](std::optional<std::string_view> token) { return token ? fmt::format("'{}'", *token) : "nothing"; };
    return invalid_argument(
        "its tokenizer is another: token {} is {} there and {} in the model ({} and {} tokens); take a draft model of the same "
        "family",
        id, shown(other), shown(one), draft.vocab_size(), model.vocab_size());
  }
  return {};
}

Result<ModelFiles> open_draft(const EngineOptions& options, const ModelFiles& files) {
  CHORAL_TRY(const EngineOptions own, options_of_draft(options));
  const auto open = [&]() -> Result<ModelFiles> {
    CHORAL_TRY(ModelFiles opened, open_model_files(own));
    if (files.tokenizer == nullptr) return unsupported("the model has no tokenizer to compare its own with");
    CHORAL_RETURN_IF_ERROR(check_same_tokens(*files.tokenizer, *opened.tokenizer));
    return opened;
  };
  return open().while_(flag_of(own));
}

Result<LoadedDraft> load_draft(const EngineOptions& options, const ModelFiles& files) {
  CHORAL_TRY(EngineOptions own, options_of_draft(options));
  CHORAL_TRY(const ModelFiles own_files, open_draft(options, files));
  const auto load = [&]() -> Result<LoadedDraft> {
    LoadedDraft draft;
    CHORAL_TRY(draft.executor, UniprocExecutor::load(own, own_files));
    const ExecutorFacts& facts = draft.executor->facts();
    CHORAL_RETURN_IF_ERROR(check_can_guess(facts));
    draft.max_texts = own.max_num_seqs;
    draft.max_rows = own.max_num_batched_tokens;
    const int64_t in_memory = facts.weight_bytes - draft.executor->worker().mapped_bytes();  // a file's pages still count as free
    draft.memory = {.bytes = facts.weight_bytes + facts.kv_bytes, .taken_bytes = std::max<int64_t>(in_memory, 0)};
    CHORAL_RETURN_IF_ERROR(load_adapters(options, own_files, draft));
    const int64_t kv_tokens = int64_t{facts.kv_pool.blocks} / facts.kv_pool.groups() * facts.kv_pool.block_tokens;
    draft.notes.insert(draft.notes.begin(),
                       fmt::format("draft model: {}, {:.0f}M parameters in {}, KV cache {} ({} tokens), {} adapters",
                                   own_files.name, static_cast<double>(facts.parameters) * 1e-6, size_text(facts.weight_bytes),
                                   size_text(facts.kv_bytes), kv_tokens, draft.adapters.size()));
    return draft;
  };
  return load().while_(flag_of(own));
}

Result<DraftMemory> plan_draft_memory(const EngineOptions& options) {
  CHORAL_TRY(EngineOptions own, options_of_draft(options));
  if (own.model.empty()) return DraftMemory();
  const auto plan = [&]() -> Result<DraftMemory> {
    CHORAL_TRY(const ModelFiles files, open_model_config(own));
    CHORAL_TRY(const auto request, parse_weight_request(own.dtype, own.activations));
    CHORAL_TRY(const DType kv_dtype, parse_kv_dtype(own.kv_cache_dtype));
    CHORAL_TRY(const auto checkpoint, io::Checkpoint::open(files.location));
    CHORAL_TRY(auto pool, ThreadPool::make(1));
    CHORAL_TRY(const auto device, set_up_device(own, architecture_of(files.config), *pool));
    CheckpointWeights weights(checkpoint, request);
    CHORAL_TRY(const auto found, find_weights(files.config, *device.session, weights, own.max_model_len, device.forms));
    const ModelSizes sizes = sizes_of(*found.model, found.expected_bytes, own);
    expect_cache(sizes, kv_dtype, *device.session);
    CHORAL_TRY(const auto memory, plan_model_memory(sizes, own, *device.session, kv_dtype));
    return DraftMemory{.bytes = memory.weight_bytes + memory.kv.bytes};
  };
  return plan().while_(flag_of(own));
}

std::unique_ptr<DraftModel> LoadedDraft::start(int64_t vocab) && {
  auto model =
      std::make_unique<DraftModel>(std::move(executor), max_texts, max_rows, static_cast<int32_t>(vocab), std::move(adapters));
  model->time_steps();
  return model;
}

}  // namespace choral::engine
