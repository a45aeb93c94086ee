#include <algorithm>
#include <deque>
#include <semaphore>

#include "base/checked_math.h"
#include "base/clock.h"
#include "base/size_text.h"
#include "engine/speculation/draft_loader.h"
#include "platform/host_view.h"
#include "platform/ops/op_profile.h"
#include "platform/platform.h"
#include "sched/scheduler.h"
#include "synthetic/adapter.h"
#include "synthetic/model.h"
#include "synthetic/random.h"
#include "synthetic/weights.h"
#include "tools/step_timer.h"

namespace choral::tools {

struct StepTimer::StepTime {
  double s = 0;
  double waited_s = 0;  // of it, for the device
  int64_t shared_tasks = 0;
};

// Steps whose operators were timed.
struct StepTimer::Profiled {
  platform::OpProfile profile = {};
  double s = 0;
  int steps = 0;
};

namespace {

constexpr uint64_t kSeed = 1;
constexpr int kWarmUpSteps = 2;
constexpr int kProfiledSteps = 3;
constexpr int kExtraSteps = 8;  // room for those
static_assert(StepTimer::kMaxAdapterRank == lora::LoRAConfig::kLargestRank);

sched::SchedulerConfig bench_scheduler(const engine::ExecutorFacts& facts) {
  sched::SchedulerConfig config;
  config.max_num_seqs = StepTimer::kMaxBatch;
  config.max_num_batched_tokens = StepTimer::kMaxPrefill;
  config.max_model_len = static_cast<int32_t>(facts.max_model_len);
  config.enable_prefix_caching = false;  // every repeat computes its prompt
  return config;
}

// Steps until every prompt is in; the sequences whose prompts came first decode meanwhile.
int64_t prompt_steps(int64_t batch, int64_t context) { return ceil_div(batch * context, StepTimer::kMaxPrefill - batch) + 1; }

template <class Steps, class Value>
double median(const Steps& steps, Value value_of) {
  std::vector<double> values;
  for (const auto& step : steps) values.push_back(value_of(step));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double total_s(const std::vector<OperatorTime>& operators, std::initializer_list<std::string_view> names) {
  double sum = 0;
  for (const auto& op : operators) {
    if (std::find(names.begin(), names.end(), op.name) != names.end()) sum += op.seconds;
  }
  return sum;
}

// One that is called by its parts is listed as these.
std::vector<OperatorTime> operator_times(const platform::OpTable& table, const platform::OpProfile& profile, int steps) {
  std::vector<OperatorTime> times;
  for (const auto& entry : profile.entries()) {
    bool composed = false;
    table.for_each([&](const auto& op) { composed = composed || (op.name == entry.name && op.provider == "composed"); });
    if (composed) continue;
    times.push_back({std::string(entry.name), static_cast<double>(entry.calls) / steps, entry.seconds / steps});
  }
  std::sort(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return times;
}

}  // namespace

Status StepTimer::load(StepTimerOptions options) {
  CHORAL_TRY(const DType format, parse_dtype(options.synthetic_format).while_("--format"));
  const double begin = now_s();
  auto& engine_options = options.engine;
  engine_options.max_num_seqs = kMaxBatch;
  engine_options.max_num_batched_tokens = kMaxPrefill;
  CHORAL_TRY(const auto draft, engine::plan_draft_memory(engine_options));
  if (options.synthetic.empty()) {
    CHORAL_TRY(const auto files, engine::open_model_files(engine_options));
    CHORAL_TRY(executor_, engine::UniprocExecutor::load(engine_options, files, nullptr, draft));
    model_.name = files.name;
  } else {
    CHORAL_TRY(const auto config, synthetic::model_config(options.synthetic));
    if (engine_options.max_model_len == 0) engine_options.max_model_len = kMaxPrefill * 2;
    CHORAL_TRY(const auto request, engine::parse_weight_request(engine_options.dtype, engine_options.activations));
    synthetic::Weights weights(format, kSeed, request);
    CHORAL_TRY(executor_, engine::UniprocExecutor::load(engine_options, config, weights, draft));
    model_.name = fmt::format("synthetic {} ({})", options.synthetic, dtype_name(format));
  }
  cycle_.emplace(*executor_, kMaxBatch, kMaxPrefill);
  model_.load_s = now_s() - begin;
  const auto& facts = executor_->facts();
  model_.parameters = facts.parameters;
  model_.weight_bytes = facts.weight_bytes;
  model_.max_model_len = facts.max_model_len;
  model_.kv_bytes = facts.kv_bytes;
  model_.kv_tokens = int64_t{facts.kv_pool.blocks} / facts.kv_pool.groups() * facts.kv_pool.block_tokens;
  model_.adapter_bytes = facts.adapter_bytes;
  model_.cpu_level = cpu_level_name(facts.cpu_level);
  model_.threads = facts.threads;
  const platform::Session& session = worker().context().session;
  if (!platform::host_reads(session)) model_.device = session.platform().description();
  model_.draft_bytes = draft.bytes;
  model_.notes = facts.notes;
  if (draft.bytes > 0)
    model_.notes.push_back(
        fmt::format("draft model: {} are left free for it; it guesses in none of the steps here", size_text(draft.bytes)));
  return {};
}

Result<kernels::MachinePeaks> StepTimer::measure_peaks() { return worker().context().session.measure_peaks(worker().context()); }

Status StepTimer::check_room(std::span<const int> batches, std::span<const int> prefills, int context, int steps) const {
  const int64_t batch = *std::max_element(batches.begin(), batches.end());
  const int64_t tokens = int64_t{context} + prompt_steps(batch, context) + steps + kExtraSteps;
  const int64_t longest = std::max<int64_t>(tokens, *std::max_element(prefills.begin(), prefills.end()) + 1);
  if (longest > executor_->facts().max_model_len) {
    return invalid_argument(
        "sequences of {} tokens do not fit the model's {}: lower --context, --steps or --prefill, or raise --max-model-len",
        longest, executor_->facts().max_model_len);
  }
  const auto& kv = executor_->facts().kv_pool;
  const int64_t blocks = kv.most_blocks(tokens, bench_scheduler(executor_->facts()).max_num_batched_tokens) * batch;
  if (blocks > kv.blocks) {
    return resource_exhausted(
        "batch {} with {} tokens each needs {} KV blocks, there are {}: lower --batch or raise --kv-cache-memory", batch, tokens,
        blocks, kv.blocks);
  }
  return {};
}

Result<AdapterCost> StepTimer::add_adapter(int32_t number, int rank, uint64_t seed) {
  const auto& facts = executor_->facts();
  CHORAL_TRY(const auto adapter, synthetic::make_adapter(facts.lora_targets, {.rank = rank, .seed = seed}));
  const double begin = now_s();
  CHORAL_TRY(auto packed, lora::PackedAdapter::pack(worker().context(), adapter, facts.lora_targets, facts.lora_config));
  const AdapterCost cost{
      .pack_s = now_s() - begin, .packed_bytes = packed->size_bytes(), .file_bytes = static_cast<int64_t>(adapter.size_bytes())};
  CHORAL_RETURN_IF_ERROR(bring(lora::AdapterKey{number}, {{std::move(packed), 1.0F}}));
  return cost;
}

// Until steps may name it.
Status StepTimer::bring(lora::AdapterKey key, const lora::PackedVoice& voice) {
  std::counting_semaphore<> came{0};
  executor_->set_wake([&] { came.release(); });
  auto placed = executor_->add_adapter(key, voice);
  while (placed.ok() && *placed == lora::Readiness::kComing) {
    came.acquire();
    executor_->take_adapters();
    placed = executor_->add_adapter(key, voice);
  }
  executor_->set_wake({});
  return placed.status();
}

Status StepTimer::write_adapter(const std::filesystem::path& directory, int rank, uint64_t seed) const {
  return synthetic::write_adapter(directory, executor_->facts().lora_targets, {.rank = rank, .seed = seed}).status();
}

Status StepTimer::add_sequences(sched::Scheduler& scheduler, int count, int prompt, int outputs, const Cast& cast) {
  const auto vocab = static_cast<int32_t>(executor_->facts().vocab_size);
  for (int i = 0; i < count; ++i) {
    SamplingParams params;
    params.temperature = 0;
    params.ignore_eos = true;
    auto request = std::make_unique<engine::EngineRequest>(params, engine::OutputText(nullptr, {}, 0));
    request->rule = engine::sampling_rule_of(params);
    request->id = next_id_++;
    request->max_tokens = outputs;
    const int32_t adapter = cast[static_cast<size_t>(i) % cast.size()];
    request->adapter_key = lora::AdapterKey{adapter};
    if (adapter != 0) request->adapter_ids = {lora::AdapterId{adapter}};
    for (int t = 0; t < prompt; ++t) request->tokens.push_back((t * 7919 + i * 104729 + 13) % vocab);
    CHORAL_RETURN_IF_ERROR(scheduler.add(std::move(request)));
  }
  return {};
}

// One step of the engine, and of what the engine does with its tokens as much as nobody need hear of; 0 when there was nothing to
// do.
StepTimer::StepTime StepTimer::run_step(sched::Scheduler& scheduler) {
  const platform::Session& session = worker().context().session;
  const ThreadPool& pool = worker().context().kernel.pool;
  const double begin = now_s(), waited_before = session.waited_s().value_or(0);
  const int64_t tasks_before = pool.shared_tasks();
  if (!cycle_->plan(scheduler, [](engine::EngineRequest&, const Status& why) { CHORAL_CHECK(false, why.message()); })) return {};
  const Status computed = cycle_->compute();
  CHORAL_CHECK(computed.ok(), computed.message());  // a figure of a device that fails would mean nothing
  cycle_->take_output(scheduler, [&](const engine::StepGain& gain) {
    for (const auto& sampled : gain.tokens) {
      CHORAL_CHECK(sampled.status.ok(), sampled.status.message());
      scheduler.commit(gain.request, {&sampled.token, 1});
    }
    if (gain.request.at_length_limit()) scheduler.finish(gain.request, sched::FinishReason::kLength);
  });
  cycle_->take_finished(scheduler, [](engine::EngineRequest&) {});
  return {now_s() - begin, session.waited_s().value_or(0) - waited_before, pool.shared_tasks() - tasks_before};
}

void StepTimer::profile_step(sched::Scheduler& scheduler, Profiled& profiled) {
  platform::Session& session = worker().context().session;
  session.finish_each_operator(true);
  executor_->worker().set_profile(&profiled.profile);
  profiled.s += run_step(scheduler).s;
  ++profiled.steps;
  executor_->worker().set_profile(nullptr);
  session.finish_each_operator(false);
}

Result<std::vector<StepTiming>> StepTimer::decode(int batch, int context, int steps, std::span<const Cast> casts) {
  // Each cast has a scheduler of its own and all the KV memory: what one finds there another wrote, the work is the same.
  struct Run {
    explicit Run(const engine::ExecutorFacts& facts) : scheduler(bench_scheduler(facts), facts.kv_pool) {}
    sched::Scheduler scheduler;
    std::vector<StepTime> steps = {};
    Profiled profiled = {};
  };
  std::deque<Run> runs;
  for (const auto& cast : casts) {
    auto& run = runs.emplace_back(executor_->facts());
    const auto outputs = static_cast<int>(prompt_steps(batch, context)) + steps + kWarmUpSteps + kProfiledSteps;
    CHORAL_RETURN_IF_ERROR(add_sequences(run.scheduler, batch, context, outputs, cast));
    do {
      run_step(run.scheduler);
    } while (cycle_->planned().decode_tokens() < batch);  // until every prompt is in
    for (int i = 0; i < kWarmUpSteps; ++i) run_step(run.scheduler);
  }
  for (int i = 0; i < steps; ++i) {
    for (auto& run : runs) {
      const StepTime step = run_step(run.scheduler);
      if (cycle_->planned().decode_tokens() == batch) run.steps.push_back(step);
    }
  }
  std::vector<StepTiming> timings;
  for (auto& run : runs) {
    if (run.steps.empty()) return internal_error("no step decoded all {} sequences at once", batch);
    for (int i = 0; i < kProfiledSteps; ++i) profile_step(run.scheduler, run.profiled);
    cycle_->forget_running(run.scheduler);
    timings.push_back(timing(batch, batch, run.steps, run.profiled));
  }
  return timings;
}

Result<std::vector<StepTiming>> StepTimer::prefill(int tokens, int repeats, std::span<const Cast> casts) {
  struct Run {
    std::vector<StepTime> steps = {};
    Profiled profiled = {};
  };
  std::vector<Run> runs(casts.size());
  for (int i = 0; i < repeats + 2; ++i) {
    for (size_t c = 0; c < casts.size(); ++c) {
      sched::Scheduler scheduler(bench_scheduler(executor_->facts()), executor_->facts().kv_pool);
      CHORAL_RETURN_IF_ERROR(add_sequences(scheduler, 1, tokens, 1, casts[c]));
      if (i == repeats + 1) {
        profile_step(scheduler, runs[c].profiled);
        continue;
      }
      const StepTime step = run_step(scheduler);
      if (i > 0) runs[c].steps.push_back(step);  // the first warms up
    }
  }
  std::vector<StepTiming> timings;
  for (const auto& run : runs) timings.push_back(timing(1, tokens, run.steps, run.profiled));
  return timings;
}

StepTiming StepTimer::timing(int batch, int tokens, const std::vector<StepTime>& steps, const Profiled& profiled) const {
  const auto& profile = profiled.profile;
  StepTiming t{.batch = batch, .tokens = tokens, .steps = static_cast<int>(steps.size())};
  t.best_s = std::min_element(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.s < b.s; })->s;
  t.median_s = median(steps, [](const auto& step) { return step.s; });
  t.weight_bytes = profile.weight_bytes() / profiled.steps;
  t.flops = profile.flops() / profiled.steps;
  t.operators = operator_times(worker().context().ops, profile, profiled.steps);
  const double step_s = profiled.s / profiled.steps;
  t.attention_share = total_s(t.operators, {"paged_attention"}) / step_s;
  t.shrink_share = total_s(t.operators, {"packed_lora_shrink", "lora_shrink", "bgmv_shrink", "sgmv_shrink"}) / step_s;
  t.product_s = total_s(t.operators, {"matmul", "matmul_quantised", "grouped_matmul"});
  t.shared_tasks = median(steps, [](const auto& step) { return static_cast<double>(step.shared_tasks); });
  if (worker().context().session.waited_s()) {
    t.host_s = median(steps, [](const auto& step) { return step.s - step.waited_s; });
  }
  return t;
}

std::vector<std::string> synthetic_names() { return synthetic::model_names(); }

StepTimer::Cast StepTimer::zipf_cast(int count, int batch) {
  std::vector<double> cumulative;
  double total = 0;
  for (int k = 1; k <= count; ++k) cumulative.push_back(total += 1.0 / k);
  synthetic::Random random(7);
  Cast cast;
  for (int i = 0; i < batch; ++i) {
    const double x = total * static_cast<double>(random.next() >> 11) * 0x1p-53;
    cast.push_back(1 + static_cast<int32_t>(std::lower_bound(cumulative.begin(), cumulative.end(), x) - cumulative.begin()));
  }
  return cast;
}

Result<std::unique_ptr<StepTimer>> StepTimer::make(StepTimerOptions options) {
  auto timer = std::make_unique<StepTimer>();
  CHORAL_RETURN_IF_ERROR(timer->load(std::move(options)));
  return timer;
}

}  // namespace choral::tools
