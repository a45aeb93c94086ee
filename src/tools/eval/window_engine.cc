#include "tools/eval/window_engine.h"

#include <algorithm>
#include <limits>

#include "base/checked_math.h"
#include "engine/speculation/speculation_choice.h"

namespace choral::tools {
namespace {

constexpr int64_t kStepLogitsBytes = int64_t{64} << 20;
constexpr int64_t kFewestStepTokens = 16;
constexpr int64_t kNoBudget = std::numeric_limits<int64_t>::max();  // what is used here is one voice's

Result<int32_t> choose_window(const io::ConfigMap& config, int32_t wanted) {
  CHORAL_TRY(const int64_t context, config.get_int("max_position_embeddings", io::kPositive));
  if (wanted > context) {
    return invalid_argument("--ctx-size {}: the model was made for {} positions; give at most as many", wanted, context);
  }
  return wanted > 0 ? wanted : static_cast<int32_t>(std::min<int64_t>(context, WindowEngine::kDefaultWindow));
}

}  // namespace

Result<std::unique_ptr<WindowEngine>> WindowEngine::load(EngineOptions options, const std::vector<AdapterUse>& adapters,
                                                         int32_t window_tokens, int32_t step_tokens) {
  CHORAL_TRY(const auto speculation, engine::speculation_choice(options));
  if (!speculation.draft_model.empty())
    return invalid_argument("--draft-model {}: texts are read here, and no token is guessed; leave it out",
                            speculation.draft_model);
  std::unique_ptr<WindowEngine> made(new WindowEngine());
  CHORAL_TRY(made->files_, engine::open_model_files(options));
  CHORAL_TRY(made->window_tokens_, choose_window(made->files_.config, window_tokens));
  options.max_model_len = made->window_tokens_;
  options.max_num_seqs = 1;
  options.max_num_batched_tokens = step_tokens > 0 ? step_tokens : std::min(options.max_num_batched_tokens, made->window_tokens_);
  CHORAL_TRY(made->executor_, engine::UniprocExecutor::load(options, made->files_));
  const auto& facts = made->facts();
  CHORAL_TRY(made->reader_, engine::RequestReader::make(made->files_, {.vocab = static_cast<int32_t>(facts.vocab_size),
                                                                       .max_model_len = made->window_tokens_,
                                                                       .seed = options.seed,
                                                                       .guesses = false}));
  CHORAL_RETURN_IF_ERROR(made->load_adapters(options, adapters));
  sched::SchedulerConfig config;
  config.max_num_seqs = 1;
  made->step_tokens_ = step_tokens > 0 ? step_tokens : made->choose_step(options.max_num_batched_tokens);
  config.max_num_batched_tokens = made->step_tokens_;
  config.max_model_len = made->window_tokens_;
  config.enable_prefix_caching = false;  // every place is computed
  config.max_loras = options.max_loras;
  made->scheduler_ = std::make_unique<sched::Scheduler>(config, facts.kv_pool, made->residency_.get());
  made->cycle_.emplace(*made->executor_, config.max_num_seqs, config.max_num_batched_tokens);
  // Any token: adapters of the root are loaded by it, and what cannot be computed is known now.
  CHORAL_RETURN_IF_ERROR(made->begin(std::vector<int32_t>{0}));
  CHORAL_TRY(const Rows probe, made->next());
  made->vocab_ = probe.logits.cols;
  return made;
}

WindowEngine::~WindowEngine() {
  if (registry_ != nullptr) registry_->set_wake({});
  if (executor_ != nullptr) executor_->set_wake({});
}

// A window is divided evenly over as few steps as the bounds allow.
int32_t WindowEngine::choose_step(int32_t most) const {
  const int64_t row_bytes = facts().vocab_size * static_cast<int64_t>(sizeof(float));
  const int64_t bound = std::min<int64_t>(most, std::max(kFewestStepTokens, kStepLogitsBytes / row_bytes));
  return static_cast<int32_t>(ceil_div(window_tokens_, ceil_div(window_tokens_, bound)));
}

Status WindowEngine::load_adapters(const EngineOptions& options, const std::vector<AdapterUse>& adapters) {
  const int64_t budget = options.adapter_memory_bytes > 0 ? options.adapter_memory_bytes : kNoBudget;
  CHORAL_TRY(registry_, engine::AdapterRegistry::make(facts().cpu_level, facts().lora_targets,
                                                      {.load = {.config = facts().lora_config,
                                                                .head_dim = facts().head_dim,
                                                                .base_class = engine::architecture_of(files_.config),
                                                                .base_names = files_.base_names,
                                                                .strict = options.strict},
                                                       .tokenizer = files_.tokenizer,
                                                       .root = options.adapter_root,
                                                       .budget_bytes = budget}));
  residency_ = std::make_unique<engine::AdapterResidency>(*registry_, *executor_, budget,
                                                          facts().lora_config.max_cpu_loras.value_or(lora::kAnyNumber));
  const auto wake = [this] {
    {
      const std::lock_guard lock(mutex_);
      adapters_changed_ = true;
    }
    changed_.notify_one();
  };
  registry_->set_wake(wake);
  executor_->set_wake(wake);
  for (const auto& spec : options.adapters) {
    if (options.on_progress) options.on_progress({"adapters", spec.name, 0});
    CHORAL_RETURN_IF_ERROR(registry_->load(spec, /*replace=*/false));
    residency_->take_changes();  // the loader waits until what it packed is taken
  }
  CHORAL_TRY(adapters_, registry_->resolve(adapters));
  CHORAL_TRY(tokens_, engine::tokens_of(adapters_));
  return {};
}

const text::Tokenizer* WindowEngine::tokenizer() const {
  return tokens_.tokenizer != nullptr ? tokens_.tokenizer.get() : files_.tokenizer.get();
}

void WindowEngine::wait_for_adapters() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return adapters_changed_; });
    adapters_changed_ = false;
  }
  residency_->take_changes();
}

Status WindowEngine::arrive(engine::EngineRequest& request) {
  for (;;) {
    switch (residency_->arrive(request)) {
      case engine::AdapterResidency::Arrival::kKnown: return {};
      case engine::AdapterResidency::Arrival::kFailed: return std::move(request.adapter_status);
      case engine::AdapterResidency::Arrival::kWaiting: wait_for_adapters();
    }
  }
}

Status WindowEngine::begin(std::span<const int32_t> tokens) {
  if (request_ != nullptr) end(*request_, sched::FinishReason::kCancelled);
  Request window;
  window.prompt_token_ids.assign(tokens.begin(), tokens.end());
  window.sampling.max_tokens = 1;
  window.sampling.temperature = 0;
  CHORAL_TRY(auto admitted, reader_->read(std::move(window), tokens_));
  auto request = std::move(admitted.completions.front());
  request->adapters = adapters_;
  request->wants_row_logits = true;
  CHORAL_RETURN_IF_ERROR(arrive(*request));
  request_ = request.get();
  std::unique_ptr<sched::Request> scheduled = std::move(request);
  Status added = scheduler_->add(std::move(scheduled));
  if (added.ok()) return {};
  residency_->leave(*request_);
  request_ = nullptr;
  return added;
}

Result<WindowEngine::Rows> WindowEngine::next() {
  CHORAL_CHECK(request_ != nullptr, "next() is asked of a window that has more rows");
  Status failed;
  while (!cycle_->plan(*scheduler_, [&](engine::EngineRequest& request, Status why) {
    failed = std::move(why);
    scheduler_->finish(request, sched::FinishReason::kError);
  })) {
    if (request_->adapter_failed) failed = std::move(request_->adapter_status);
    if (failed.ok()) {
      wait_for_adapters();
      continue;
    }
    end(*request_, sched::FinishReason::kError);
    return failed;
  }
  if (Status computed = cycle_->compute(); !computed.ok()) {
    scheduler_->finish(*request_, sched::FinishReason::kError);
    scheduler_->abandon(cycle_->planned());
    end(*request_, sched::FinishReason::kError);
    return computed;
  }
  Rows rows;
  bool done = false;
  cycle_->take_output(*scheduler_, [&](const engine::StepGain& gain) {
    rows = {gain.row_logits_begin, gain.row_logits};
    done = !gain.tokens.empty();
  });
  if (done) end(*request_, sched::FinishReason::kLength);
  return rows;
}

void WindowEngine::end(engine::EngineRequest& request, sched::FinishReason reason) {
  if (!request.finished()) scheduler_->finish(request, reason);
  cycle_->take_finished(*scheduler_, [this](engine::EngineRequest& ended) { residency_->leave(ended); });
  request_ = nullptr;
}

}  // namespace choral::tools
