#include "engine/step_timer.h"

#include <algorithm>
#include <deque>

#include "base/clock.h"
#include "engine/checkpoint_weights.h"
#include "engine/engine_request.h"
#include "engine/synthetic_model.h"
#include "engine/synthetic_weights.h"

namespace choral::engine {
namespace {

constexpr int kMaxBatch = 256;
constexpr int kMaxTokens = 2048;
constexpr uint64_t kSeed = 1;
constexpr int kWarmUpSteps = 2;
constexpr int kProfiledSteps = 3;

sched::SchedulerConfig bench_scheduler(const Worker& worker) {
  sched::SchedulerConfig config;
  config.max_num_seqs = kMaxBatch;
  config.max_num_batched_tokens = kMaxTokens;
  config.max_model_len = static_cast<int32_t>(worker.max_model_len());
  config.enable_prefix_caching = false;  // every repeat computes its prompt
  return config;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

StepTimer::StepTimer() : input_writer_(kMaxBatch, kMaxTokens) {}

Result<std::unique_ptr<StepTimer>> StepTimer::make(StepTimerOptions options) {
  const double begin = now_s();
  std::unique_ptr<StepTimer> bench(new StepTimer());
  bench->options_ = options.engine;
  bench->options_.max_num_seqs = kMaxBatch;
  bench->options_.max_num_batched_tokens = kMaxTokens;
  CHORAL_TRY(bench->worker_, Worker::make(bench->options_));
  Worker& worker = *bench->worker_;
  if (options.synthetic.empty()) {
    CHORAL_TRY(const auto files, open_model_files(bench->options_));
    CHORAL_TRY(const auto request, parse_weight_request(bench->options_.dtype));
    CHORAL_TRY(auto checkpoint, io::Checkpoint::open(files.path));
    CheckpointWeights weights(std::move(checkpoint), request);
    CHORAL_RETURN_IF_ERROR(worker.load(files.config, weights, bench->options_));
    bench->name_ = files.name;
  } else {
    CHORAL_TRY(const auto config, synthetic_model_config(options.synthetic));
    if (bench->options_.max_model_len == 0) bench->options_.max_model_len = kMaxTokens * 2;
    SyntheticWeights weights(options.synthetic_format, kSeed);
    CHORAL_RETURN_IF_ERROR(worker.load(config, weights, bench->options_));
    bench->name_ = fmt::format("synthetic {} ({})", options.synthetic, dtype_name(options.synthetic_format));
  }
  CHORAL_RETURN_IF_ERROR(worker.initialize_cache(bench->options_));
  bench->plan_.reserve(kMaxBatch);
  bench->count_weights();
  bench->load_s_ = now_s() - begin;
  return bench;
}

void StepTimer::count_weights() {
  const auto modules = worker_->loaded().model->modules();
  const bool untied = std::any_of(modules.begin(), modules.end(), [](const auto* m) { return m->prefix() == "lm_head"; });
  for (const auto* module : modules) {
    const bool is_embedding = module->prefix() == "model.embed_tokens";
    if (is_embedding && untied) continue;  // a few rows of it are read, nothing is multiplied
    const bool is_head = is_embedding || module->prefix() == "lm_head";
    (is_head ? head_weights_ : layer_weights_) += static_cast<double>(module->parameters());
    (is_head ? head_bytes_ : layer_bytes_) += static_cast<double>(module->weight_bytes());
  }
}

Status StepTimer::add_sequences(sched::Scheduler& scheduler, int count, int prompt, int outputs, const Cast& cast) {
  const auto vocab = static_cast<int32_t>(worker_->loaded().model->vocab_size());
  for (int i = 0; i < count; ++i) {
    SamplingParams params;
    params.temperature = 0;
    params.ignore_eos = true;
    auto request = std::make_unique<EngineRequest>(params, OutputText(nullptr, {}, 0));
    request->rule = sampling_rule_of(params);
    request->id = next_id_++;
    request->max_tokens = outputs;
    request->adapter_key = cast[static_cast<size_t>(i) % cast.size()];
    if (request->adapter_key != lora::kBaseKey) request->adapter_ids = {lora::AdapterId{request->adapter_key.value()}};
    for (int t = 0; t < prompt; ++t) request->tokens.push_back((t * 7919 + i * 104729 + 13) % vocab);
    CHORAL_RETURN_IF_ERROR(scheduler.add(std::move(request)));
  }
  return {};
}

// One step and what the engine does around it; 0 when there was nothing to do.
double StepTimer::run_step(sched::Scheduler& scheduler) {
  const double begin = now_s();
  scheduler.schedule(plan_);
  if (plan_.empty()) return 0;
  const Status computed = worker_->execute_model(input_writer_.write(plan_), output_);
  CHORAL_CHECK(computed.ok(), computed.message());  // a figure of a device that fails would mean nothing
  scheduler.on_computed(plan_);
  size_t tokens_taken = 0;
  for (const auto& item : plan_.items()) {
    if (!item.needs_logits) continue;
    scheduler.commit(*item.request, {&output_.tokens[tokens_taken++].token, 1});
    if (item.request->at_length_limit()) scheduler.finish(*item.request, sched::FinishReason::kLength);
  }
  scheduler.take_finished(finished_);
  for (const auto& request : finished_) input_writer_.forget(static_cast<const EngineRequest&>(*request));
  finished_.clear();
  return now_s() - begin;
}

void StepTimer::forget_running(const sched::Scheduler& scheduler) {
  for (const auto* request : scheduler.running()) input_writer_.forget(static_cast<const EngineRequest&>(*request));
}

Result<std::vector<StepTiming>> StepTimer::decode_casts(int batch, int context, int steps, std::span<const Cast> casts) {
  // Each cast has a scheduler of its own and all the KV memory: what one finds there another wrote, the work is the same.
  struct Run {
    explicit Run(const Worker& worker)
        : scheduler(bench_scheduler(worker), worker.kv_blocks(), static_cast<int32_t>(kernels::kKvBlockTokens)) {}
    sched::Scheduler scheduler;
    std::vector<double> seconds = {};
    double profiled = 0;
    platform::OpProfile profile = {};
  };
  std::deque<Run> runs;
  for (const auto& cast : casts) {
    auto& run = runs.emplace_back(*worker_);
    CHORAL_RETURN_IF_ERROR(add_sequences(run.scheduler, batch, context, steps + kWarmUpSteps + kProfiledSteps + 1, cast));
    do {
      run_step(run.scheduler);
    } while (plan_.decode_tokens() < batch);  // until every prompt is in
    for (int i = 0; i < kWarmUpSteps; ++i) run_step(run.scheduler);
  }
  for (int i = 0; i < steps; ++i) {
    for (auto& run : runs) {
      const double s = run_step(run.scheduler);
      if (plan_.decode_tokens() == batch) run.seconds.push_back(s);
    }
  }
  std::vector<StepTiming> timings;
  for (auto& run : runs) {
    if (run.seconds.empty()) return internal_error("no step decoded all {} sequences at once", batch);
    worker_->set_profile(&run.profile);
    for (int i = 0; i < kProfiledSteps; ++i) run.profiled += run_step(run.scheduler);
    worker_->set_profile(nullptr);
    forget_running(run.scheduler);
    timings.push_back(timing(batch, batch, std::move(run.seconds), run.profile, run.profiled));
  }
  return timings;
}

Result<StepTiming> StepTimer::decode(int batch, int context, int steps) {
  const Cast base{lora::kBaseKey};
  CHORAL_TRY(const auto timings, decode_casts(batch, context, steps, {&base, 1}));
  return timings.front();
}

Result<std::vector<StepTiming>> StepTimer::prefill_casts(int tokens, int repeats, std::span<const Cast> casts) {
  struct Run {
    std::vector<double> seconds = {};
    double profiled = 0;
    platform::OpProfile profile = {};
  };
  std::vector<Run> runs(casts.size());
  for (int i = 0; i < repeats + 2; ++i) {
    const bool is_profiled = i == repeats + 1;
    for (size_t c = 0; c < casts.size(); ++c) {
      sched::Scheduler scheduler(bench_scheduler(*worker_), worker_->kv_blocks(), static_cast<int32_t>(kernels::kKvBlockTokens));
      CHORAL_RETURN_IF_ERROR(add_sequences(scheduler, 1, tokens, 1, casts[c]));
      if (is_profiled) worker_->set_profile(&runs[c].profile);
      const double s = run_step(scheduler);
      worker_->set_profile(nullptr);
      if (is_profiled) runs[c].profiled = s;
      if (i > 0 && !is_profiled) runs[c].seconds.push_back(s);  // the first warms up
    }
  }
  std::vector<StepTiming> timings;
  for (auto& run : runs) timings.push_back(timing(1, tokens, std::move(run.seconds), run.profile, run.profiled));
  return timings;
}

Result<StepTiming> StepTimer::prefill(int tokens, int repeats) {
  const Cast base{lora::kBaseKey};
  CHORAL_TRY(const auto timings, prefill_casts(tokens, repeats, {&base, 1}));
  return timings.front();
}

StepTiming StepTimer::timing(int batch, int tokens, std::vector<double> seconds, const platform::OpProfile& profile,
                             double profiled_s) const {
  StepTiming t{.batch = batch, .tokens = tokens, .steps = static_cast<int>(seconds.size())};
  t.best_s = *std::min_element(seconds.begin(), seconds.end());
  t.median_s = median(std::move(seconds));
  t.weight_bytes = layer_bytes_ + head_bytes_;
  t.flops = 2 * (layer_weights_ * tokens + head_weights_ * batch);
  t.attention_share = profile.seconds_of("paged_attention") / profiled_s;
  t.shrink_share = profile.seconds_of("lora_shrink") / profiled_s;
  return t;
}

}  // namespace choral::engine
