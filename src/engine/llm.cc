// The public LLM: loads, then joins the caller's side (RequestReader) and the engine's side (EngineCore).
#include "choral/llm.h"

#include <algorithm>
#include <filesystem>
#include <list>
#include <span>

#include "base/out_of_memory.h"
#include "base/size_text.h"
#include "base/system_error.h"
#include "engine/engine_core.h"
#include "engine/options_check.h"
#include "engine/ranks/following_rank.h"
#include "engine/ranks/leading_executor.h"
#include "engine/ranks/ranks_executor.h"
#include "engine/request_reader.h"
#include "engine/sampling_check.h"
#include "engine/speculation/draft_loader.h"
#include "engine/speculation/speculation_choice.h"
#include "engine/stated_sampling.h"
#include "engine/uniproc_executor.h"
#include "quant/quant_config.h"
#include "text/fill_tokens.h"

namespace choral {

std::string_view version() { return CHORAL_VERSION; }

std::string_view adapter_state_name(AdapterState state) {
  switch (state) {
    case AdapterState::kOnDisk: return "on disk";
    case AdapterState::kLoading: return "loading";
    case AdapterState::kResident: return "resident";
    case AdapterState::kFailed: return "failed";
  }
  return "";
}

namespace engine {
namespace {

constexpr std::string_view kNoRoomForRequest = "the request cannot be read";

class EngineStream : public ResponseStream {
 public:
  EngineStream(std::weak_ptr<EngineCore> core, const AdmittedRequest& admitted)
      : response_(admitted.response), core_(std::move(core)) {
    for (const auto& completion : admitted.completions) ids_.push_back(completion->id);
  }
  ~EngineStream() override {
    response_->on_ready({});
    if (!response_->finished()) cancel();
  }

  const std::string& id() const override { return response_->id(); }
  bool next(StreamEvent& event) override { return response_->next(event); }
  StreamState try_next(StreamEvent& event) override { return response_->try_next(event); }
  StreamState next_for(StreamEvent& event, std::chrono::milliseconds limit) override { return response_->next_for(event, limit); }
  void on_ready(std::function<void()> callback) override { response_->on_ready(std::move(callback)); }
  AnswerFacts facts() const override { return response_->facts(); }
  std::vector<int32_t> prompt_token_ids() const override { return response_->prompt_token_ids(); }
  std::vector<StreamEvent> given() const override { return response_->given(); }
  void cancel() override {
    if (const auto core = core_.lock()) core->cancel(ids_);  // once: the core takes them
  }
  const Status& status() const override {
    status_ = response_->status();
    return status_;
  }
  RequestOutput wait() override { return response_->wait(); }

 private:
  std::shared_ptr<Response> response_;
  std::weak_ptr<EngineCore> core_;
  std::list<sched::RequestId> ids_;
  mutable Status status_;
};

class TokenizerVocabulary : public Vocabulary {
 public:
  TokenizerVocabulary(std::shared_ptr<const text::Tokenizer> tokenizer, int64_t size)
      : tokenizer_(std::move(tokenizer)), size_(size) {}

  Result<std::vector<int32_t>> tokenize(std::string_view text, bool add_special_tokens, size_t most_tokens,
                                        bool parse_special) const override {
    if (tokenizer_ == nullptr) return unsupported("this model has no tokenizer");
    return or_out_of_memory("the text cannot be tokenised", [&] {
      return tokenizer_->encode(
          text, {.add_special_tokens = add_special_tokens, .parse_special = parse_special, .max_tokens = most_tokens});
    });
  }
  std::string detokenize(const std::vector<int32_t>& ids, bool skip_special_tokens) const override {
    return tokenizer_ == nullptr ? "" : tokenizer_->decode(ids, {.skip_special_tokens = skip_special_tokens});
  }
  std::string token_text(int32_t id) const override {
    return tokenizer_ == nullptr ? "" : std::string(tokenizer_->id_to_token(id).value_or(""));
  }
  std::string token_bytes(int32_t id) const override {
    return tokenizer_ == nullptr ? "" : std::string(tokenizer_->token_bytes(id));
  }
  int64_t size() const override { return size_; }

 private:
  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const int64_t size_;
};

class Engine : public LLM {
 public:
  static Result<std::unique_ptr<LLM>> load(EngineOptions options);
  // The last owner of the core may be a stream that is just being cancelled, on any thread.
  ~Engine() override {
    if (core_) core_->stop();
  }

  Result<std::unique_ptr<ResponseStream>> submit(Request request) override;
  Result<std::vector<std::unique_ptr<ResponseStream>>> submit_each(Request request, std::vector<Prompt> prompts) override;
  std::vector<RequestOutput> generate(std::vector<Request> requests) override;
  Result<std::vector<int32_t>> tokenize(std::string_view text, bool add_special_tokens) const override {
    return of_base().tokenize(text, add_special_tokens, SIZE_MAX, true);
  }
  std::string detokenize(const std::vector<int32_t>& ids, bool skip_special_tokens) const override {
    return of_base().detokenize(ids, skip_special_tokens);
  }
  std::string token_text(int32_t id) const override { return of_base().token_text(id); }
  std::string token_bytes(int32_t id) const override { return of_base().token_bytes(id); }
  Result<std::shared_ptr<const Vocabulary>> vocabulary(const std::vector<AdapterUse>& adapters) const override {
    CHORAL_TRY(const auto versions, registry_->look_up(adapters));
    CHORAL_TRY(const auto tokens, tokens_of(versions));
    const auto& tokenizer = tokens.tokenizer != nullptr ? tokens.tokenizer : files_.tokenizer;
    return std::shared_ptr<const Vocabulary>(
        std::make_shared<TokenizerVocabulary>(tokenizer, info_.vocab_size + tokens.more_ids));
  }
  Result<std::string> apply_chat_template(const Request& request) const override {
    return or_out_of_memory(kNoRoomForRequest, [&] { return reader_->apply_chat_template(request); });
  }
  Status structured_output_support() const override {
    return or_out_of_memory("structured output cannot be looked at", [&] { return reader_->structured_output_support(); });
  }
  SamplingParams default_sampling(const SamplingParams& otherwise) const override { return stated_sampling_.over(otherwise); }
  const ModelInfo& info() const override { return info_; }
  std::vector<std::string> device_notes() const override { return core_->device_notes(); }
  EngineStats stats() const override { return core_->stats(); }
  Status check_health(std::chrono::milliseconds limit) override { return core_->check_health(limit); }
  EngineHeartbeat heartbeat() const override { return core_->heartbeat(); }
  EngineActivity activity() const override { return core_->activity(); }
  bool next_kv_events(KvEventBatch& batch, std::chrono::milliseconds limit) override {
    return core_->next_kv_events(batch, limit);
  }
  Status pause(PauseMode mode) override { return core_->pause(mode); }
  void resume() override { core_->resume(); }
  Status load_adapter(const AdapterSpec& spec, bool replace, std::optional<int> expected_generation) override {
    return or_out_of_memory("the adapter cannot be loaded", [&] { return registry_->load(spec, replace, expected_generation); });
  }
  Status unload_adapter(std::string_view name, std::optional<int> expected_generation) override {
    return or_out_of_memory("the adapter cannot be unloaded", [&] { return registry_->unload(name, expected_generation); });
  }
  Status pin_adapter(std::string_view name, bool pinned) override {
    return or_out_of_memory("the adapter cannot be pinned", [&] { return registry_->pin(name, pinned); });
  }
  std::vector<AdapterInfo> adapters() const override { return registry_->list(); }
  std::optional<AdapterInfo> adapter(std::string_view name) const override { return registry_->find_info(name); }
  Result<std::vector<AdapterLayer>> adapter_layers(std::string_view name) override {
    return or_out_of_memory("the adapter cannot be looked at", [&] { return registry_->layers(name); });
  }
  AdapterNames adapter_names() const override { return registry_->names(); }

 private:
  TokenizerVocabulary of_base() const { return {files_.tokenizer, info_.vocab_size}; }
  Result<AdmittedRequest> read(Request request);
  Result<std::unique_ptr<Executor>> load_executor(EngineOptions& options, const LoadedDraft* draft) const;
  Result<std::optional<LoadedDraft>> load_draft(const SpeculationChoice& speculation, const EngineOptions& options);
  Status load_adapters(const EngineOptions& options);
  void describe(const ExecutorFacts& facts);
  void describe_guesses();
  void describe(const LoadedDraft& draft);

  ModelFiles files_;
  ModelInfo info_;
  StatedSampling stated_sampling_;
  std::unique_ptr<RequestReader> reader_;
  std::shared_ptr<EngineCore> core_;
  std::shared_ptr<AdapterRegistry> registry_;  // the core keeps it too, and the executor whose targets its loader needs
};

Result<sched::SchedulerConfig> scheduler_config(const EngineOptions& options, const ExecutorFacts& facts) {
  sched::SchedulerConfig config;
  config.max_num_seqs = options.max_num_seqs;
  config.max_num_batched_tokens = options.max_num_batched_tokens;
  config.max_model_len = static_cast<int32_t>(facts.max_model_len);
  // What a token leaves in the cache depends on those after it, where they are seen.
  config.enable_chunked_prefill = options.enable_chunked_prefill && !facts.sees_later;
  config.enable_prefix_caching = options.enable_prefix_caching && !facts.sees_later;
  config.max_waiting = options.max_waiting;
  config.max_loras = options.max_loras;
  if (options.scheduling_policy != "fcfs" && options.scheduling_policy != "priority") {
    return invalid_argument("--scheduling-policy {}: choose fcfs or priority", options.scheduling_policy);
  }
  config.policy = options.scheduling_policy == "fcfs" ? sched::Policy::kFcfs : sched::Policy::kPriority;
  CHORAL_RETURN_IF_ERROR(sched::validate(config));
  return config;
}

// By its config; transformers calls those that it does not name LABEL_0 and so on.
Result<std::vector<std::string>> class_labels(const io::ConfigMap& config, int64_t classes) {
  CHORAL_TRY(const auto named, config.get_map_or_empty("id2label"));
  std::vector<std::string> labels;
  for (int64_t i = 0; i < classes; ++i) {
    CHORAL_TRY(auto label, named.get_string_or(std::to_string(i), fmt::format("LABEL_{}", i)));
    labels.push_back(std::move(label));
  }
  return labels;
}

Status check_adapter_root(const std::string& root) {
  if (root.empty()) return {};
  std::error_code error;
  const std::filesystem::directory_iterator readable(root, error);
  return error ? system_error(error.value(), "--adapter-root: cannot read " + root) : Status();
}

// Of the model that is guessed for.
Status check_can_use_drafts(const ExecutorFacts& facts) {
  if (facts.head.kind != models::HeadKind::kTokens) return unsupported("the model gives no text, so there is nothing to guess");
  return {};
}

Result<std::unique_ptr<LLM>> Engine::load(EngineOptions options) {
  auto engine = std::make_unique<Engine>();
  if (options.rank_link != nullptr) CHORAL_RETURN_IF_ERROR(take_ranks_of_link(options));
  CHORAL_RETURN_IF_ERROR(check_options(options));
  CHORAL_RETURN_IF_ERROR(check_adapter_root(options.adapter_root));
  CHORAL_RETURN_IF_ERROR(parse_weight_request(options.dtype, options.activations).status());  // before any file is opened
  // A platform that was brought may know more schemes.
  if (options.platform == nullptr) CHORAL_RETURN_IF_ERROR(quant::check_quantization(options.quantization));
  if (options.on_progress) options.on_progress({"open", options.model, 0});
  CHORAL_TRY(engine->files_, open_model_files(options));
  CHORAL_TRY(const SpeculationChoice speculation, speculation_choice(options));
  CHORAL_TRY(auto draft, engine->load_draft(speculation, options));
  CHORAL_TRY(std::unique_ptr<Executor> executor, engine->load_executor(options, draft ? &*draft : nullptr));
  engine->files_.location.gguf.reset();  // all is read, and its vocabulary is large
  const ExecutorFacts& facts = executor->facts();
  engine->describe(facts);
  engine->info_.ranks = options.tensor_parallel_size;
  std::unique_ptr<DraftModel> draft_model;
  if (draft) {
    CHORAL_RETURN_IF_ERROR(check_can_use_drafts(facts).while_(fmt::format("--draft-model {}", speculation.draft_model)));
    engine->describe(*draft);
    draft_model = std::move(*draft).start(facts.vocab_size);
  }
  CHORAL_TRY(engine->info_.class_labels, class_labels(engine->files_.config, facts.head.classes));
  CHORAL_TRY(const auto scheduler, scheduler_config(options, facts));
  CHORAL_TRY(engine->reader_, RequestReader::make(engine->files_, {.vocab = static_cast<int32_t>(engine->info_.vocab_size),
                                                                   .max_model_len = engine->info_.max_model_len,
                                                                   .head = facts.head,
                                                                   .embedding_size = facts.embedding_size,
                                                                   .seed = options.seed,
                                                                   .timeout_s = options.request_timeout_s,
                                                                   .queue_timeout_s = options.queue_timeout_s,
                                                                   .guesses = speculation.guesses}));
  engine->info_.bos_token_id = engine->files_.tokenizer == nullptr ? std::nullopt : engine->files_.tokenizer->bos_id();
  engine->info_.eos_token_ids = engine->reader_->eos_token_ids();
  engine->info_.has_chat_template = engine->reader_->has_chat_template();
  engine->info_.chat_template = engine->reader_->template_source(/*with_tools=*/false);
  engine->info_.tool_template = engine->reader_->template_source(/*with_tools=*/true);
  CHORAL_TRY(engine->stated_sampling_, StatedSampling::read(engine->files_.generation_config));
  CHORAL_TRY(engine->registry_, AdapterRegistry::make(facts.cpu_level, facts.lora_targets,
                                                      {.load = {.config = facts.lora_config,
                                                                .head_dim = facts.head_dim,
                                                                .base_class = engine->info_.architecture,
                                                                .base_names = engine->files_.base_names,
                                                                .strict = options.strict},
                                                       .tokenizer = engine->files_.tokenizer,
                                                       .root = options.adapter_root,
                                                       .places = options.adapter_places,
                                                       .budget_bytes = facts.adapter_bytes,
                                                       .generations = options.adapter_generations,
                                                       .generations_alive = options.generations_alive}));
  const EngineLimits limits{.adapter_budget_bytes = facts.adapter_bytes,
                            .most_adapters = facts.lora_config.max_cpu_loras.value_or(lora::kAnyNumber),
                            .max_waiting_tokens = options.max_waiting_tokens,
                            .kv_event_batches = options.kv_event_batches,
                            .most_guessed = speculation.guesses ? options.most_guessed : 0,
                            .traffic_bytes = speculation.keeps_traffic ? options.traffic_memory_bytes : 0};
  if (limits.traffic_bytes > 0)
    engine->info_.notes.push_back(
        fmt::format("ended answers: up to {} of them are kept to guess from", size_text(limits.traffic_bytes)));
  engine->core_ = std::make_shared<EngineCore>(std::move(executor), scheduler, engine->registry_, limits, now_s, MaskLimits(),
                                               std::move(draft_model));
  engine->describe_guesses();
  CHORAL_RETURN_IF_ERROR(engine->core_->start());
  CHORAL_RETURN_IF_ERROR(engine->load_adapters(options));
  if (options.on_progress) options.on_progress({"ready", engine->info_.name, 1});
  return std::unique_ptr<LLM>(std::move(engine));
}

Result<std::unique_ptr<Executor>> Engine::load_executor(EngineOptions& options, const LoadedDraft* draft) const {
  const DraftMemory beside = draft != nullptr ? draft->memory : DraftMemory();
  if (options.rank_link != nullptr) {
    CHORAL_TRY(auto first, LeadingExecutor::load(options, files_, beside));
    return std::unique_ptr<Executor>(std::move(first));
  }
  if (options.tensor_parallel_size > 1) {
    CHORAL_TRY(auto ranks, RanksExecutor::load(options, files_, beside));
    return std::unique_ptr<Executor>(std::move(ranks));
  }
  CHORAL_TRY(auto one,
             UniprocExecutor::load(options, files_, draft != nullptr ? draft->executor->worker().pool() : nullptr, beside));
  return std::unique_ptr<Executor>(std::move(one));
}

Result<std::optional<LoadedDraft>> Engine::load_draft(const SpeculationChoice& speculation, const EngineOptions& options) {
  if (speculation.draft_model.empty()) return std::optional<LoadedDraft>();
  CHORAL_TRY(auto draft, engine::load_draft(options, files_));
  return std::optional<LoadedDraft>(std::move(draft));
}

Status Engine::load_adapters(const EngineOptions& options) {
  for (size_t i = 0; i < options.adapters.size(); ++i) {
    const auto& spec = options.adapters[i];
    if (options.on_progress) {
      options.on_progress({"adapters", spec.name, static_cast<double>(i) / static_cast<double>(options.adapters.size())});
    }
    CHORAL_RETURN_IF_ERROR(registry_->load(spec, /*replace=*/false));
  }
  return {};
}

void Engine::describe(const ExecutorFacts& facts) {
  info_.name = files_.name;
  info_.path = files_.path;
  info_.is_gguf = files_.location.kind == io::ModelLocation::Kind::kGguf;
  info_.architecture = architecture_of(files_.config);
  const std::string told = files_.config.to_json() + facts.weights_digest;
  info_.digest = to_hex(sha256(std::as_bytes(std::span(told))));
  info_.parameters = facts.parameters;
  info_.weight_bytes = facts.weight_bytes;
  info_.kv_cache_bytes = facts.kv_bytes;
  info_.kv_cache_tokens = int64_t{facts.kv_pool.blocks} / facts.kv_pool.groups() * facts.kv_pool.block_tokens;
  info_.kv_block_tokens = facts.kv_pool.block_tokens;
  info_.max_model_len = static_cast<int>(facts.max_model_len);
  info_.vocab_size = static_cast<int>(facts.vocab_size);
  info_.gives_text = facts.head.kind == models::HeadKind::kTokens;
  info_.threads = facts.threads;
  info_.cpu_level = cpu_level_name(facts.cpu_level);
  info_.kv_cache_dtype = facts.kv_dtype;
  if (files_.tokenizer != nullptr) {
    info_.bos_token = files_.tokenizer->special_token("bos");
    info_.eos_token = files_.tokenizer->special_token("eos");
    info_.fill_tokens = text::fill_tokens(*files_.tokenizer);
  }
  info_.notes = facts.notes;
  info_.layers = facts.layers;
  if (!files_.pooling.ok()) {
    info_.notes.push_back("no embeddings: " + files_.pooling.status().message());
  } else if (is_of_all_tokens(files_.pooling->pooling)) {
    info_.notes.push_back(fmt::format("embeddings are {}, as the model's files say", pooling_name(files_.pooling->pooling)));
  }
}

void Engine::describe_guesses() { info_.most_guessed = info_.gives_text ? core_->most_guessed() : 0; }

// Without what is so of the model too: its device, and the like.
void Engine::describe(const LoadedDraft& draft) {
  auto& notes = info_.notes;
  std::vector<std::string> own = draft.notes;
  for (const auto& note : draft.executor->facts().notes) {
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) own.push_back("draft model: " + note);
  }
  notes.insert(notes.end(), own.begin(), own.end());
}

Result<AdmittedRequest> Engine::read(Request request) {
  return or_out_of_memory(kNoRoomForRequest, [&]() -> Result<AdmittedRequest> {
    CHORAL_TRY(const auto adapters, registry_->resolve(request.adapters));
    CHORAL_TRY(const auto tokens, tokens_of(adapters));
    CHORAL_TRY(auto admitted, reader_->read(std::move(request), tokens));
    for (const auto& completion : admitted.completions) completion->adapters = adapters;
    return admitted;
  });
}

Result<std::unique_ptr<ResponseStream>> Engine::submit(Request request) {
  if (!request.gives_text()) request.sampling = {};
  CHORAL_RETURN_IF_ERROR(check_completions(request.sampling));
  CHORAL_RETURN_IF_ERROR(core_->check_room(completions_made(request.sampling)));  // before the work of reading it
  CHORAL_TRY(auto admitted, read(std::move(request)));
  return or_out_of_memory(kNoRoomForRequest, [&]() -> Result<std::unique_ptr<ResponseStream>> {
    auto stream = std::make_unique<EngineStream>(core_, admitted);
    CHORAL_RETURN_IF_ERROR(core_->add_requests({&admitted, 1}).status());
    return std::unique_ptr<ResponseStream>(std::move(stream));
  });
}

Result<std::vector<std::unique_ptr<ResponseStream>>> Engine::submit_each(Request request, std::vector<Prompt> prompts) {
  using Streams = std::vector<std::unique_ptr<ResponseStream>>;
  if (!request.gives_text()) request.sampling = {};
  CHORAL_RETURN_IF_ERROR(check_completions(request.sampling));
  const int64_t completions = completions_made(request.sampling);
  CHORAL_RETURN_IF_ERROR(core_->check_room(std::ssize(prompts) * completions));
  return or_out_of_memory(kNoRoomForRequest, [&]() -> Result<Streams> {
    CHORAL_TRY(const auto adapters, registry_->resolve(request.adapters));
    CHORAL_TRY(const auto tokens, tokens_of(adapters));
    CHORAL_TRY(auto admitted, reader_->read_each(std::move(request), std::move(prompts), tokens));
    Streams streams;
    for (auto& one : admitted) {
      for (const auto& completion : one.completions) completion->adapters = adapters;
      streams.push_back(std::make_unique<EngineStream>(core_, one));
    }
    CHORAL_RETURN_IF_ERROR(core_->add_together(admitted));
    return streams;
  });
}

std::vector<RequestOutput> Engine::generate(std::vector<Request> requests) {
  std::vector<RequestOutput> outputs(requests.size());
  std::vector<AdmittedRequest> admitted;
  std::vector<std::pair<RequestOutput*, std::unique_ptr<EngineStream>>> answers;  // one for each of `admitted`
  for (size_t i = 0; i < requests.size(); ++i) {
    outputs[i].id = requests[i].id;
    auto readable = read(std::move(requests[i]));
    if (!readable.ok()) {
      outputs[i].status = std::move(readable).status();
      continue;
    }
    answers.emplace_back(&outputs[i], std::make_unique<EngineStream>(core_, *readable));
    admitted.push_back(std::move(*readable));
  }
  // As many at once as the queue has room for: the same list makes the same batches every time. A full queue is not an error of
  // an offline batch: wait for an answer, then go on.
  size_t added = 0;
  for (size_t answered = 0; answered < answers.size(); ++answered) {
    auto& [output, stream] = answers[answered];
    Status refused;
    if (added < admitted.size()) {
      const auto taken = core_->add_requests(std::span(admitted).subspan(added));
      if (taken.ok())
        added += *taken;
      else
        refused = taken.status();
    }
    if (answered < added) {
      *output = stream->wait();
    } else {
      output->status = std::move(refused);
      ++added;
    }
  }
  return outputs;
}

}  // namespace
}  // namespace engine

Result<std::unique_ptr<LLM>> LLM::load(EngineOptions options) {
  const std::string what = fmt::format("{} cannot be loaded", options.model);
  return or_out_of_memory(what, [&] { return engine::Engine::load(std::move(options)); });
}

}  // namespace choral
