#include "engine/engine_core.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/thread.h"

namespace choral::engine {
namespace {

constexpr std::chrono::milliseconds kShortagePause{10};

EngineRequest& engine_request(sched::Request& request) { return static_cast<EngineRequest&>(request); }

// The queue's limit is for arrivals; running requests that are preempted wait there too.
sched::SchedulerConfig with_room_for_preempted(sched::SchedulerConfig config) {
  config.max_waiting += config.max_num_seqs;
  return config;
}

PositionLogprobs position_logprobs(const StepOutput& output, const SampledToken& sampled) {
  PositionLogprobs out;
  out.chosen = {sampled.token, sampled.logprob};
  const auto top = output.top_of(sampled);
  out.top.reserve(top.size());
  for (const auto& entry : top) out.top.push_back({entry.token, entry.logprob});
  return out;
}

}  // namespace

EngineCore::EngineCore(std::unique_ptr<Executor> executor, const sched::SchedulerConfig& config,
                       std::shared_ptr<AdapterRegistry> registry, int64_t adapter_budget_bytes, int64_t most_adapters)
    : executor_(std::move(executor)),
      registry_(std::move(registry)),
      max_waiting_(config.max_waiting),
      residency_(*registry_, *executor_, adapter_budget_bytes, most_adapters),
      scheduler_(with_room_for_preempted(config), executor_->facts().kv_blocks, static_cast<int32_t>(kernels::kKvBlockTokens),
                 &residency_),
      cycle_(*executor_, config.max_num_seqs, config.max_num_batched_tokens) {
  accepted_.reserve(config.max_num_seqs);
  publish_stats();
  registry_->set_wake([this] {
    {
      const std::lock_guard lock(mutex_);
      adapters_changed_ = true;
    }
    inbox_changed_.notify_one();
  });
}

Status EngineCore::start() {
  spare_.keep();
  CHORAL_TRY(thread_, start_thread("the engine's thread", [this] { run(); }));
  return {};
}

EngineCore::~EngineCore() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  inbox_changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  registry_->set_wake({});
}

Result<size_t> EngineCore::add_requests(std::span<AdmittedRequest> requests) {
  size_t taken = 0;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return unavailable("the engine is shutting down");
    auto waiting = std::ssize(inbox_) + stats_.waiting;
    for (auto& request : requests) {
      waiting += std::ssize(request.completions);
      if (waiting > max_waiting_) break;
      std::move(request.completions.begin(), request.completions.end(), std::back_inserter(inbox_));
      ++taken;
    }
    if (taken == 0 && !requests.empty()) {
      return resource_exhausted("{} requests are waiting, the most that max_waiting allows; try again later",
                                waiting - std::ssize(requests.front().completions));
    }
  }
  inbox_changed_.notify_one();
  return taken;
}

void EngineCore::cancel(std::vector<sched::RequestId> ids) {
  {
    const std::lock_guard lock(mutex_);
    cancels_.insert(cancels_.end(), ids.begin(), ids.end());
  }
  inbox_changed_.notify_one();
}

std::vector<std::string> EngineCore::device_notes() const {
  const std::lock_guard lock(mutex_);
  return device_notes_;
}

EngineStats EngineCore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void EngineCore::run() {
  const SpareMemory::Use use(&spare_);
  for (;;) {
    bool adapters_changed = false;
    {
      std::unique_lock lock(mutex_);
      inbox_changed_.wait(lock, [&] {
        return stop_ || adapters_changed_ || !inbox_.empty() || !cancels_.empty() || (scheduler_.has_work() && !starved_);
      });
      if (stop_) break;
      adapters_changed = std::exchange(adapters_changed_, false);
      arrivals_.swap(inbox_);
      stats_.waiting += static_cast<int>(arrivals_.size());  // add_requests() counts on from them; publish_stats() sets it right
      leavers_.swap(cancels_);
    }
    if (adapters_changed) take_changes();
    spare_.keep();
    take_inbox();
    step();
    publish_stats();
  }
}

// Half a change would be none at all, so it waits, and the steps go on, until there is the memory that it may take.
void EngineCore::take_changes() {
  if (!spare_.keep()) {
    std::this_thread::sleep_for(kShortagePause);
    const std::lock_guard lock(mutex_);
    adapters_changed_ = true;
    return;
  }
  if (!residency_.take_changes()) return;
  readmit_stranded();
  retry_parked();
}

void EngineCore::take_inbox() {
  for (auto& arrival : arrivals_) admit(std::move(arrival));
  arrivals_.clear();
  for (const auto id : leavers_) {
    if (auto* found = scheduler_.find(id)) {
      auto& request = engine_request(*found);
      Status finished = or_out_of_memory("the answer cannot be ended", [&] {
        finish(request, sched::FinishReason::kCancelled);
        return Status();
      });
      if (!finished.ok()) fail_one(request, std::move(finished));
    } else {
      drop_parked(id);
    }
  }
  leavers_.clear();
}

void EngineCore::admit(std::unique_ptr<EngineRequest> request) {
  const auto response = request->response;
  const int index = request->index;
  std::unique_ptr<sched::Request> arrived = std::move(request);
  Status status = or_out_of_memory("the request cannot be taken in", [&] { return take(arrived); });
  if (status.ok()) return;
  residency_.leave(engine_request(*arrived));
  response->fail(index, std::move(status));
}

// A refused one stays where it is.
Status EngineCore::take(std::unique_ptr<sched::Request>& request) {
  switch (residency_.arrive(engine_request(*request))) {
    case AdapterResidency::Arrival::kWaiting:
      parked_.emplace_back();
      parked_.back().reset(&engine_request(*request.release()));
      return {};
    case AdapterResidency::Arrival::kFailed: return std::move(engine_request(*request).adapter_status);
    case AdapterResidency::Arrival::kKnown: break;
  }
  return scheduler_.add(std::move(request));
}

void EngineCore::retry_parked() {
  std::vector<std::unique_ptr<EngineRequest>> again;
  again.swap(parked_);
  for (auto& request : again) admit(std::move(request));
}

// They keep their places in the queue.
void EngineCore::readmit_stranded() {
  if (!residency_.take_may_be_stranded()) return;
  std::vector<sched::Request*> stranded;
  for (auto* request : scheduler_.waiting()) {
    if (residency_.is_stranded(engine_request(*request))) stranded.push_back(request);
  }
  for (auto* waiting : stranded) {
    std::unique_ptr<EngineRequest> request(&engine_request(*scheduler_.withdraw(*waiting).release()));
    residency_.start_over(*request);
    admit(std::move(request));
  }
}

void EngineCore::drop_parked(sched::RequestId id) {
  const auto found = std::find_if(parked_.begin(), parked_.end(), [id](const auto& request) { return request->id == id; });
  if (found == parked_.end()) return;
  EngineRequest& request = **found;
  residency_.leave(request);
  const double waited_s = now_s() - request.submitted_s;
  request.response->finish(request.index, sched::FinishReason::kCancelled, "", 0,
                           {.queue_s = waited_s, .first_token_s = 0, .total_s = waited_s});
  parked_.erase(found);
}

void EngineCore::step() {
  starved_ = !cycle_.plan(scheduler_, [this](EngineRequest& refused, Status why) { fail_one(refused, std::move(why)); });
  if (!starved_) {
    const double begin = now_s();
    for (const auto& item : cycle_.planned().items()) {
      auto& request = engine_request(*item.request);
      if (request.scheduled_s == 0) request.scheduled_s = begin;
    }
    const Status computed = or_out_of_memory("the step cannot be computed", [&] { return cycle_.compute(); });
    if (!computed.ok()) return fail_step(computed);
    prompt_tokens_ += cycle_.planned().new_prompt_tokens();
    take_output(now_s());
  }
  end_finished();
}

void EngineCore::take_output(double now) {
  cycle_.take_output(scheduler_, [&](const StepGain& gain) {
    Status committed = or_out_of_memory("the answer cannot be kept", [&] {
      if (!gain.prompt_logprobs.empty())
        gain.request.response->add_prompt_logprobs(gain.prompt_logprobs_begin, gain.prompt_logprobs);
      if (!gain.tokens.empty()) commit(gain.request, gain.tokens, now);
      return Status();
    });
    if (!committed.ok()) fail_one(gain.request, std::move(committed));
  });
}

void EngineCore::end_finished() {
  cycle_.take_finished(scheduler_, [&](EngineRequest& ended) {
    if (ended.adapter_failed) ended.response->fail(ended.index, std::move(ended.adapter_status));
    residency_.leave(ended);
    starved_ = false;  // what it held may be what others wait for
  });
}

// What the device computed is lost, keys and values included: every request of the step ends with its reason.
void EngineCore::fail_step(const Status& status) {
  publish_device_notes();
  for (const auto& item : cycle_.planned().items()) {
    auto& request = engine_request(*item.request);
    if (request.finished()) continue;
    request.response->fail(request.index, status);
    scheduler_.finish(request, sched::FinishReason::kError);
  }
  scheduler_.abandon(cycle_.planned());
  end_finished();
}

// Of one request; where its answer stopped nobody knows, so nothing is added to it.
void EngineCore::fail_one(EngineRequest& request, Status status) {
  request.response->fail(request.index, std::move(status));
  scheduler_.finish(request, sched::FinishReason::kError);
}

// Tokens behind the one that ends the answer are nobody's.
void EngineCore::commit(EngineRequest& request, std::span<SampledToken> sampled, double now) {
  accepted_.clear();
  Ending ending;
  for (auto& token : sampled) {
    if (!token.status.ok()) {
      request.response->fail(request.index, std::move(token.status));
      ending = {sched::FinishReason::kError};
    } else {
      if (request.first_token_s == 0) request.first_token_s = now;
      accepted_.push_back(token.token);
      ending = keep_token(request, token);
    }
    if (ending.reason != sched::FinishReason::kNone) break;
  }
  scheduler_.commit(request, accepted_);
  generated_tokens_ += std::ssize(accepted_);
  if (ending.reason != sched::FinishReason::kNone) finish(request, ending.reason, std::move(ending.stop_reason));
}

// The last of accepted_.
EngineCore::Ending EngineCore::keep_token(EngineRequest& request, const SampledToken& sampled) {
  const auto accepted = static_cast<int32_t>(accepted_.size());
  const auto& stops = request.stop_ids;
  const bool is_stop_id = std::find(stops.begin(), stops.end(), sampled.token) != stops.end();
  const bool looks_for_stops = request.output_count() + accepted >= request.params.min_tokens;
  bool stopped = is_stop_id && looks_for_stops;
  std::string stop_reason;
  if (!stopped || request.params.include_stop_str_in_output) {
    if (request.text.push(sampled.token, looks_for_stops)) {
      stopped = true;
      stop_reason = request.text.matched_stop();
    }
  }
  if (request.params.logprobs) request.response->add_logprobs(request.index, position_logprobs(cycle_.output(), sampled));
  request.response->add_token(request.index, sampled.token, request.text.take_released());
  if (stopped && stop_reason.empty()) {
    const auto& own = request.params.stop_token_ids;
    if (std::find(own.begin(), own.end(), sampled.token) != own.end()) stop_reason = std::to_string(sampled.token);
  }
  if (stopped) return {sched::FinishReason::kStop, std::move(stop_reason)};
  if (request.token_count() + accepted >= request.max_length) return {sched::FinishReason::kLength};
  return {};
}

void EngineCore::finish(EngineRequest& request, sched::FinishReason reason, std::string stop_reason) {
  // The last held-back text may complete a stop string.
  if (!request.text.stopped() && request.text.finish() && reason == sched::FinishReason::kLength) {
    reason = sched::FinishReason::kStop;
    stop_reason = request.text.matched_stop();
  }
  request.response->add_text(request.index, request.text.take_released());
  const double now = now_s();
  const RequestMetrics metrics{
      .queue_s = request.scheduled_s > 0 ? request.scheduled_s - request.submitted_s : now - request.submitted_s,
      .first_token_s = request.first_token_s > 0 ? request.first_token_s - request.submitted_s : 0,
      .total_s = now - request.submitted_s};
  request.response->finish(request.index, reason, std::move(stop_reason), request.cached_prompt_tokens, metrics);
  scheduler_.finish(request, reason);
}

void EngineCore::publish_stats() {
  const auto& cache = scheduler_.cache();
  const EngineStats now{.running = scheduler_.running_count(),
                        .waiting = scheduler_.waiting_count() + static_cast<int>(parked_.size()),
                        .steps = scheduler_.stats().steps,
                        .prompt_tokens = prompt_tokens_,
                        .generated_tokens = generated_tokens_,
                        .preemptions = scheduler_.stats().preemptions,
                        .prefix_query_tokens = cache.stats().query_tokens,
                        .prefix_hit_tokens = cache.stats().hit_tokens,
                        .kv_blocks_total = cache.block_count(),
                        .kv_blocks_free = cache.free_blocks(),
                        .adapter_bytes = residency_.resident_bytes(),
                        .adapter_budget_bytes = residency_.budget_bytes(),
                        .adapter_loads = residency_.loads(),
                        .adapter_evictions = residency_.evictions(),
                        .host_copies = cycle_.output().host_copies};
  publish_device_notes();
  const std::lock_guard lock(mutex_);
  stats_ = now;
}

void EngineCore::publish_device_notes() {
  auto notes = executor_->take_device_notes();
  if (notes.empty()) return;
  const std::lock_guard lock(mutex_);
  std::move(notes.begin(), notes.end(), std::back_inserter(device_notes_));
}

}  // namespace choral::engine
