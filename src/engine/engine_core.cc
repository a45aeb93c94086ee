#include "engine/engine_core.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/thread.h"
#include "engine/given_answer.h"

namespace choral::engine {
namespace {

constexpr std::chrono::milliseconds kShortagePause{10};
constexpr double kLongestPauseS = 3600;  // further limits than the system's clock adds up

EngineRequest& engine_request(sched::Request& request) { return static_cast<EngineRequest&>(request); }

// The queue's limit is for arrivals; running requests that are preempted wait there too.
sched::SchedulerConfig with_room_for_preempted(sched::SchedulerConfig config) {
  config.max_waiting += config.max_num_seqs;
  return config;
}

}  // namespace

EngineCore::EngineCore(std::unique_ptr<Executor> executor, const sched::SchedulerConfig& config,
                       std::shared_ptr<AdapterRegistry> registry, const EngineLimits& limits, Clock clock,
                       const MaskLimits& mask_limits, std::unique_ptr<DraftModel> draft)
    : executor_(std::move(executor)),
      registry_(std::move(registry)),
      max_waiting_(config.max_waiting),
      max_waiting_tokens_(limits.max_waiting_tokens),
      clock_(std::move(clock)),
      residency_(*registry_, *executor_, limits.adapter_budget_bytes, limits.most_adapters),
      journal_(limits.kv_event_batches > 0
                   ? std::make_unique<KvJournal>(executor_->facts().kv_pool, static_cast<size_t>(limits.kv_event_batches))
                   : nullptr),
      scheduler_(with_room_for_preempted(config), executor_->facts().kv_pool, &residency_, journal_.get()),
      cycle_(*executor_, config.max_num_seqs, config.max_num_batched_tokens),
      speculator_(limits.most_guessed, config.max_num_seqs, limits.traffic_bytes, std::move(draft),
                  [clock = mask_limits.clock] { return clock(pthread_self()); }),
      writer_(scheduler_, clock_, config.max_num_seqs),
      masks_(config.max_num_seqs + config.max_waiting, mask_limits),  // given tokens wait for theirs in the queue
      devices_work_beside_(executor_->on_wait([this] { hand_out(); })),
      heartbeat_(clock_) {
  publish_stats();
  registry_->set_wake([this] { wake(adapters_changed_); });
  executor_->set_wake([this] { wake(adapters_changed_); });
  masks_.set_wake([this] { wake(masks_came_); });
}

// From any thread.
void EngineCore::wake(bool& what) {
  {
    const std::lock_guard lock(mutex_);
    what = true;
  }
  inbox_changed_.notify_one();
}

Status EngineCore::start() {
  spare_.keep();
  CHORAL_TRY(thread_, start_thread("the engine's thread", [this] { run(); }));
  return {};
}

void EngineCore::stop() {
  std::vector<std::unique_ptr<EngineRequest>> arrived;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    arrived.swap(inbox_);
  }
  inbox_changed_.notify_all();
  turned_.notify_all();
  if (thread_.joinable()) thread_.join();
  registry_->set_wake({});
  executor_->set_wake({});
  masks_.set_wake({});
  hand_out();
  const std::lock_guard queues(queues_mutex_);
  for (const auto& request : parked_) residency_.leave(*request);
  parked_.clear();
  while (!scheduler_.running().empty()) scheduler_.finish(*scheduler_.running().back(), sched::FinishReason::kError);
  while (!scheduler_.waiting().empty()) scheduler_.finish(*scheduler_.waiting().back(), sched::FinishReason::kError);
  end_finished();
}

void EngineCore::run() {
  const SpareMemory::Use use(&spare_);
  for (;;) {
    bool adapters_changed = false, aborts = false, resumed = false;
    Turn turn = 0;
    {
      std::unique_lock lock(mutex_);
      wait_for_work(lock);
      if (stop_) break;
      heartbeat_.begin_turn();
      adapters_changed = std::exchange(adapters_changed_, false);
      masks_came_ = false;
      aborts = std::exchange(aborts_, false);
      resumed = std::exchange(resumed_, false);
      seen_flow_ = flow_;
      turn = turn_asked_;
      arrivals_.swap(inbox_);
      // add_requests() counts on from them; publish_stats() sets it right.
      stats_.waiting += static_cast<int>(std::exchange(inbox_places_, 0));
      stats_.waiting_tokens += std::exchange(inbox_tokens_, 0);
      predicted_waiting_tokens_ += std::exchange(inbox_predicted_tokens_, 0);
      leavers_.swap(cancels_);
    }
    {
      std::unique_lock queues(queues_mutex_);
      if (adapters_changed) take_changes();
      spare_.keep();
      if (resumed) retry_parked();
      take_inbox();
      if (aborts) cancel_all();
      end_late();
      if (seen_flow_ != Flow::kPaused) {
        step(queues);
      } else {
        end_finished();
      }
      if (journal_ != nullptr) journal_->end_batch();
      publish_stats();
      if (seen_flow_ == Flow::kEnding) end_flow();
    }
    if (seen_flow_ == Flow::kPaused) hand_out();  // no step comes behind which readers are given the last one's
    end_turn(turn);
  }
}

void EngineCore::wait_for_work(std::unique_lock<std::mutex>& lock) {
  const auto has_work = [this] {
    return stop_ || adapters_changed_ || masks_came_ || resumed_ || turn_asked_ != turn_ended_ || !inbox_.empty() ||
           !cancels_.empty() || (flow_ != Flow::kPaused && scheduler_.has_work() && !starved_);
  };
  const bool has_late = masks_.has_late();
  if (deadlines_.next_s() == Deadlines::kNever && !has_late) return inbox_changed_.wait(lock, has_work);
  const double left_s = std::clamp(deadlines_.next_s() - clock_(), 0.0, has_late ? MaskThreads::kLookAgainS : kLongestPauseS);
  inbox_changed_.wait_for(lock, std::chrono::duration<double>(left_s), has_work);
}

void EngineCore::end_turn(Turn turn) {
  heartbeat_.end_turn();
  {
    const std::lock_guard lock(mutex_);
    if (turn == turn_ended_) return;
    turn_ended_ = turn;
  }
  turned_.notify_all();
}

// Half a change would be none at all, so it waits, and the steps go on, until there is the memory that it may take.
void EngineCore::take_changes() {
  if (!spare_.keep()) {
    std::this_thread::sleep_for(kShortagePause);
    const std::lock_guard lock(mutex_);
    adapters_changed_ = true;
    return;
  }
  residency_.take_changes([this] {
    readmit_stranded();
    retry_parked();
  });
}

void EngineCore::take_inbox() {
  for (auto& arrival : arrivals_) {
    deadlines_.add(*arrival);
    scheduler_.note_arrival(*arrival);  // whoever waits for a first load keeps its place
    arrival->is_held = seen_flow_ == Flow::kEnding;
    if (arrival->is_held) {
      parked_.push_back(std::move(arrival));
    } else {
      admit(std::move(arrival));
    }
  }
  arrivals_.clear();
  for (const auto id : leavers_) cancel_one(id);
  leavers_.clear();
}

void EngineCore::cancel_one(sched::RequestId id) {
  if (auto* found = scheduler_.find(id)) {
    auto& request = engine_request(*found);
    Status finished = or_out_of_memory("the answer cannot be ended", [&] {
      writer_.finish(request, sched::FinishReason::kCancelled);
      return Status();
    });
    if (!finished.ok()) writer_.fail(request, std::move(finished));
    return;
  }
  drop_parked(id, [this](EngineRequest& request) {
    const double waited_s = clock_() - request.submitted_s;
    request.response->finish(request.index, sched::FinishReason::kCancelled, "",
                             {.queue_s = waited_s, .first_token_s = 0, .total_s = waited_s});
  });
}

// Ends the requests of which a limit of time has passed.
void EngineCore::end_late() {
  const double now = clock_();
  if (now < deadlines_.next_s()) return;
  deadlines_.begin();
  std::vector<std::pair<sched::RequestId, Status>> late;
  const auto review = [&](const EngineRequest& request) {
    if (&request.lead() != &request) return;  // one of another's beams
    if (Status passed = deadlines_.review(request, now); !passed.ok()) late.emplace_back(request.id, std::move(passed));
  };
  for (const auto* request : scheduler_.running()) review(static_cast<const EngineRequest&>(*request));
  for (const auto* request : scheduler_.waiting()) review(static_cast<const EngineRequest&>(*request));
  for (const auto& request : parked_) review(*request);
  for (auto& [id, passed] : late) {
    if (auto* found = scheduler_.find(id)) {
      writer_.fail(engine_request(*found), std::move(passed));
    } else {
      drop_parked(id, [&](EngineRequest& request) { request.response->fail(request.index, std::move(passed)); });
    }
  }
}

void EngineCore::admit(std::unique_ptr<EngineRequest> request) {
  const auto response = request->response;
  const int index = request->index;
  std::unique_ptr<sched::Request> arrived = std::move(request);
  Status status = take(arrived);
  if (status.ok()) return;
  const bool adapter_unusable = engine_request(*arrived).adapter_unusable;
  residency_.leave(engine_request(*arrived));
  response->fail(index, std::move(status), adapter_unusable);
}

// A refused one stays where it is. The room that it will fill can be given up as a whole; what is noted of it in many records is
// made whole once it is begun, with the spare memory behind it.
Status EngineCore::take(std::unique_ptr<sched::Request>& request) {
  constexpr std::string_view kDoing = "the request cannot be taken in";
  if (!spare_.keep() && !SpareMemory::is_any_left()) return out_of_memory(kDoing);
  CHORAL_RETURN_IF_ERROR(or_out_of_memory(kDoing, [&] { return scheduler_.make_room_for(*request); }));
  switch (residency_.arrive(engine_request(*request))) {
    case AdapterResidency::Arrival::kWaiting:
      parked_.emplace_back();
      parked_.back().reset(&engine_request(*request.release()));
      return {};
    case AdapterResidency::Arrival::kFailed: return std::move(engine_request(*request).adapter_status);
    case AdapterResidency::Arrival::kKnown: break;
  }
  const auto& grammar = engine_request(*request).grammar;
  if (grammar != nullptr && !grammar->is_bounded()) CHORAL_RETURN_IF_ERROR(masks_.start());
  EngineRequest& known = engine_request(*request);
  known.described_adapters = residency_.describe(known);
  CHORAL_RETURN_IF_ERROR(check_given_adapters(known.given_adapters, known.described_adapters));
  CHORAL_RETURN_IF_ERROR(scheduler_.add(std::move(request)));
  arrived_tokens_ += known.remaining();
  if (known.grammar != nullptr && !known.sits_out && known.grammar->is_due()) masks_.post(known);
  return {};
}

// They keep their places in the queue.
void EngineCore::readmit_stranded() {
  if (!residency_.take_may_be_stranded()) return;
  std::vector<sched::Request*> stranded;
  for (auto* request : scheduler_.waiting()) {
    if (!request->sits_out && residency_.is_stranded(engine_request(*request))) stranded.push_back(request);
  }
  for (auto* waiting : stranded) {
    std::unique_ptr<EngineRequest> request(&engine_request(*scheduler_.withdraw(*waiting).release()));
    residency_.start_over(*request);
    admit(std::move(request));
  }
}

template <class Tell>
void EngineCore::drop_parked(sched::RequestId id, Tell&& tell) {
  const auto found = std::find_if(parked_.begin(), parked_.end(), [id](const auto& request) { return request->id == id; });
  if (found == parked_.end()) return;
  residency_.leave(**found);
  tell(**found);
  parked_.erase(found);
}

void EngineCore::step(std::unique_lock<std::mutex>& queues) {
  take_masks();
  if (scheduler_.has_work()) {
    queues.unlock();  // it only looks at them, and a draft model takes its time
    speculator_.guess(scheduler_.running(), std::exchange(arrived_tokens_, 0));
    queues.lock();
    starved_ = !cycle_.plan(scheduler_, [this](EngineRequest& refused, Status why) { writer_.fail(refused, std::move(why)); });
    if (!starved_) {
      begin_answers();
      publish_queue();  // whoever was admitted waits no longer, however long the step takes
      queues.unlock();
      heartbeat_.begin_step(cycle_.planned().total_tokens());
      const double begun = clock_();
      const Status computed = or_out_of_memory("the step cannot be computed", [&] { return cycle_.compute(); });
      speculator_.add_step(cycle_.planned(), clock_() - begun);
      heartbeat_.end_step();
      hand_out();
      queues.lock();
      if (!computed.ok()) return fail_step(computed);
      const int64_t read = cycle_.planned().new_prompt_tokens(), given_before = writer_.generated_tokens();
      prompt_tokens_ += read;
      take_output(clock_());
      step_tokens_.add(static_cast<int32_t>(read + writer_.generated_tokens() - given_before));
      if (!devices_work_beside_) {
        queues.unlock();
        hand_out();
        queues.lock();
      }
    }
  }
  end_finished();
}

void EngineCore::take_masks() {
  masks_.take([this](EngineRequest& request, Status status) {
    Status settled = or_out_of_memory("the answer cannot be kept", [&] {
      writer_.settle(request, std::move(status));
      return Status();
    });
    if (!settled.ok()) writer_.fail(request, std::move(settled));
  });
}

void EngineCore::begin_answers() {
  const double now = clock_();
  for (const auto& item : cycle_.planned().items()) {
    auto& request = engine_request(*item.request);
    if (request.scheduled_s > 0 || request.response == nullptr) continue;  // begun, or one of another's beams
    request.scheduled_s = now;
    speculator_.begin(request);
    request.response->begin(request.cached_prompt_tokens, std::move(request.described_adapters), now - request.submitted_s);
  }
}

void EngineCore::take_output(double now) {
  cycle_.take_output(scheduler_, [&](const StepGain& gain) {
    Status committed = or_out_of_memory("the answer cannot be kept", [&] {
      if (!gain.prompt_logprobs.empty())
        gain.request.response->add_prompt_logprobs(gain.prompt_logprobs_begin, gain.prompt_logprobs);
      if (gain.request.answering().beams != nullptr) {
        if (!gain.tokens.empty()) writer_.offer(gain.request, cycle_.output(), gain.tokens.front(), now);
      } else if (!gain.tokens.empty()) {
        const int32_t right = writer_.commit(gain.request, cycle_.output(), gain.tokens, gain.guessed, now);
        speculator_.judge(gain.request, gain.guessed, right);
      }
      if (!gain.request.finished() && gain.request.grammar != nullptr && gain.request.grammar->is_due()) {
        speculator_.wish(gain.request);
        masks_.post(gain.request);
      }
      if (!gain.embedding.empty()) writer_.give_pooled(gain.request, gain.embedding);
      return Status();
    });
    if (!committed.ok()) writer_.fail(gain.request, std::move(committed));
  });
}

// What the last step gave, to its readers: on a device while the next one runs, which there is as long as anybody's answer goes
// on.
void EngineCore::hand_out() {
  const SpareMemory::Use use(&spare_);  // behind readers' callbacks, which no step can be blamed for
  writer_.hand_out();
}

void EngineCore::end_finished() {
  cycle_.take_finished(scheduler_, [&](EngineRequest& ended) {
    masks_.forget(ended);
    speculator_.end(ended);
    if (ended.adapter_failed) ended.response->fail(ended.index, std::move(ended.adapter_status), ended.adapter_unusable);
    residency_.leave(ended);
    starved_ = false;  // what it held may be what others wait for
  });
}

// What the device computed is lost, keys and values included: every request of the step ends with its reason.
void EngineCore::fail_step(const Status& status) {
  publish_device_notes();
  for (const auto& item : cycle_.planned().items()) {
    auto& request = engine_request(*item.request);
    if (!request.finished()) writer_.fail(request, status);
  }
  scheduler_.abandon(cycle_.planned());
  end_finished();
}

void EngineCore::publish_stats() {
  const auto& cache = scheduler_.cache();
  EngineStats now{.steps = scheduler_.stats().steps,
                  .prompt_tokens = prompt_tokens_,
                  .generated_tokens = writer_.generated_tokens(),
                  .preemptions = scheduler_.stats().preemptions,
                  .corrupted = writer_.corrupted(),
                  .step_tokens = step_tokens_,
                  .speculation = speculator_.stats(),
                  .prefix_query_tokens = cache.stats().query_tokens,
                  .prefix_hit_tokens = cache.stats().hit_tokens,
                  .kv_blocks_total = cache.block_count(),
                  .kv_blocks_free = cache.free_blocks(),
                  .adapter_bytes = residency_.resident_bytes(),
                  .adapter_budget_bytes = residency_.budget_bytes(),
                  .adapter_loads = residency_.loads(),
                  .adapter_load_seconds = residency_.load_seconds(),
                  .adapter_evictions = residency_.evictions(),
                  .host_copies = cycle_.output().host_copies,
                  .host_copied_bytes = cycle_.output().host_copied_bytes};
  count_queue(now);
  publish_device_notes();
  const std::lock_guard lock(mutex_);
  stats_ = now;
  predicted_waiting_tokens_ = predicted_in_queue();
}

void EngineCore::publish_queue() {
  EngineStats now;
  count_queue(now);
  const std::lock_guard lock(mutex_);
  stats_.running = now.running;
  stats_.waiting = now.waiting;
  stats_.waiting_tokens = now.waiting_tokens;
  predicted_waiting_tokens_ = predicted_in_queue();
}

void EngineCore::count_queue(EngineStats& stats) const {
  stats.running = scheduler_.running_count();
  stats.waiting = waiting_sequences();
  stats.waiting_tokens = scheduler_.waiting_tokens();
  for (const auto& request : parked_) stats.waiting_tokens += std::ssize(request->tokens);
}

int64_t EngineCore::predicted_in_queue() const {
  int64_t tokens = scheduler_.predicted_waiting_tokens();
  for (const auto& request : parked_) tokens += request->predicted_count;
  return tokens;
}

}  // namespace choral::engine
