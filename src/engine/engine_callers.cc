// EngineCore as callers' threads see it: what goes into the inbox, and what is asked.
#include <algorithm>
#include <set>
#include <utility>

#include "engine/engine_core.h"

namespace choral::engine {
namespace {

constexpr std::chrono::hours kLongestWait{24 * 365};  // further ones are beyond what the system's clock adds up

// With those that no step computes.
int64_t tokens_of(const AdmittedRequest& request) {
  int64_t tokens = 0;
  for (const auto& completion : request.completions) tokens += std::ssize(completion->tokens) + completion->predicted_count;
  return tokens;
}

// In the queue.
int64_t places(const AdmittedRequest& request) {
  int64_t places = 0;
  for (const auto& completion : request.completions) places += completion->width();
  return places;
}

RunningAnswer running_answer(const EngineRequest& request) {
  RunningAnswer answer{.prompt_tokens = request.prompt_count,
                       .read_tokens = std::min(request.computed_count, request.prompt_count),
                       .made_tokens = request.output_count(),
                       .guesses = request.guesser.counts()};
  for (const auto& use : request.adapters) answer.adapters.push_back({use.version->request.lora_name, use.scale});
  return answer;
}

}  // namespace

Status EngineCore::check_places(int64_t waiting, int64_t completions) const {
  if (completions > max_waiting_) {
    return too_large(
        "the request asks for {} completions (n, best_of or beam_width, for each of its prompts), and at most {} may wait "
        "(--max-num-queued-reqs; in the library max_waiting); ask for fewer",
        completions, max_waiting_);
  }
  if (waiting + completions <= max_waiting_) return {};
  return resource_exhausted(
      "{} requests are waiting, and at most {} may (--max-num-queued-reqs; in the library max_waiting); try again later", waiting,
      max_waiting_);
}

// Whoever finds nobody waiting is never too long.
Status EngineCore::check_tokens(int64_t tokens) const {
  const int64_t waiting_tokens = inbox_tokens_ + stats_.waiting_tokens + inbox_predicted_tokens_ + predicted_waiting_tokens_;
  if (max_waiting_tokens_ == 0 || waiting_tokens == 0 || waiting_tokens + tokens <= max_waiting_tokens_) return {};
  return resource_exhausted(
      "the queue has no room for its tokens: {} are waiting, this request brings {}, and at most {} may "
      "(--max-num-queued-tokens; in the library max_waiting_tokens); try again later",
      waiting_tokens, tokens, max_waiting_tokens_);
}

Status EngineCore::check_room(int64_t completions) const {
  const std::lock_guard lock(mutex_);
  return check_places(inbox_places_ + stats_.waiting, completions);
}

// With the lock held, as the next.
void EngineCore::make_room_in_inbox(size_t completions) {
  const size_t needed = inbox_.size() + completions;
  if (needed > inbox_.capacity()) inbox_.reserve(std::max(needed, 2 * inbox_.capacity()));
}

void EngineCore::put_into_inbox(AdmittedRequest& request) {
  const double now = clock_();
  inbox_places_ += places(request);
  for (auto& completion : request.completions) {
    completion->submitted_s = now;
    inbox_tokens_ += std::ssize(completion->tokens);
    inbox_predicted_tokens_ += completion->predicted_count;
    inbox_.push_back(std::move(completion));
  }
}

Status EngineCore::add_together(std::span<AdmittedRequest> requests) {
  int64_t completions = 0, tokens = 0;
  for (const auto& request : requests) {
    completions += places(request);
    tokens += tokens_of(request);
  }
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return unavailable("the engine is shutting down");
    CHORAL_RETURN_IF_ERROR(check_places(inbox_places_ + stats_.waiting, completions));
    CHORAL_RETURN_IF_ERROR(check_tokens(tokens));
    make_room_in_inbox(static_cast<size_t>(completions));
    for (auto& request : requests) put_into_inbox(request);
  }
  inbox_changed_.notify_one();
  return {};
}

Result<size_t> EngineCore::add_requests(std::span<AdmittedRequest> requests) {
  size_t taken = 0;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return unavailable("the engine is shutting down");
    for (auto& request : requests) {
      Status room = check_places(inbox_places_ + stats_.waiting, places(request));
      if (room.ok()) room = check_tokens(tokens_of(request));
      if (!room.ok() && taken == 0) return room;
      if (!room.ok()) break;
      make_room_in_inbox(request.completions.size());  // now, so that all go in or none
      put_into_inbox(request);
      ++taken;
    }
  }
  inbox_changed_.notify_one();
  return taken;
}

void EngineCore::cancel(std::list<sched::RequestId>& ids) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    cancels_.splice(cancels_.end(), ids);
  }
  inbox_changed_.notify_one();
}

Status EngineCore::wait_for_turn(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds limit) {
  if (stop_) return unavailable("the engine is shutting down");
  const Turn asked = ++turn_asked_;
  inbox_changed_.notify_one();
  turned_.wait_for(lock, std::min<std::chrono::milliseconds>(limit, kLongestWait), [&] { return stop_ || turn_ended_ >= asked; });
  if (turn_ended_ >= asked) return {};
  if (stop_) return unavailable("the engine is shutting down");
  return deadline_exceeded("the engine's loop did not turn within {} ms: a step takes longer, or the device hangs",
                           limit.count());
}

Status EngineCore::check_health(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return wait_for_turn(lock, limit);
}

// Beside those in the inbox.
int EngineCore::waiting_sequences() const {
  int waiting = scheduler_.waiting_count();
  for (const auto& request : parked_) waiting += request->width();
  return waiting;
}

EngineActivity EngineCore::activity() const {
  std::set<std::string> running, waiting;
  const auto add = [](const EngineRequest& request, std::set<std::string>& names) {
    for (const auto& use : request.adapters) names.insert(use.version->request.lora_name);
  };
  EngineActivity activity;
  const std::lock_guard queues(queues_mutex_);
  for (const auto* request : scheduler_.running()) {
    if (&request->lead() != request) continue;  // one of another's beams
    const auto& answered = static_cast<const EngineRequest&>(*request);
    add(answered, running);
    activity.running.push_back(running_answer(answered));
  }
  for (const auto* request : scheduler_.waiting()) add(static_cast<const EngineRequest&>(*request), waiting);
  for (const auto& request : parked_) add(*request, waiting);
  activity.deferred = scheduler_.deferred_count() + static_cast<int>(parked_.size());
  activity.waiting = waiting_sequences();
  const std::lock_guard lock(mutex_);
  for (const auto& request : inbox_) add(*request, waiting);
  activity.waiting += static_cast<int>(inbox_places_);
  activity.running_adapters.assign(running.begin(), running.end());
  activity.waiting_adapters.assign(waiting.begin(), waiting.end());
  return activity;
}

void EngineCore::publish_device_notes() {
  auto notes = executor_->take_device_notes();
  if (notes.empty()) return;
  const std::lock_guard lock(mutex_);
  std::move(notes.begin(), notes.end(), std::back_inserter(device_notes_));
}

std::vector<std::string> EngineCore::device_notes() const {
  const std::lock_guard lock(mutex_);
  return device_notes_;
}

EngineStats EngineCore::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats now = stats_;
  now.waiting += static_cast<int>(inbox_places_);
  now.waiting_tokens += inbox_tokens_;
  now.is_paused = flow_ != Flow::kRuns;
  return now;
}

}  // namespace choral::engine
