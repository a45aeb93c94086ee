#include "sched/waiting_queue.h"

#include <algorithm>

#include "base/check.h"
#include "sched/fair_share.h"

namespace choral::sched {

bool more_urgent(const Request& a, const Request& b, Policy policy) {
  if (a.promoted != b.promoted) return a.promoted;
  if (policy == Policy::kPriority && a.priority != b.priority) return a.priority < b.priority;
  return a.arrival < b.arrival;
}

WaitingQueue::WaitingQueue(const SchedulerConfig& config) : policy_(config.policy), fair_adapters_(config.fair_adapters) {
  requests_.reserve(static_cast<size_t>(config.max_waiting) + static_cast<size_t>(config.max_num_seqs));
}

void WaitingQueue::push(Request& request) {
  CHORAL_CHECK(requests_.size() < requests_.capacity(), "waiting queue grows beyond what was reserved");
  requests_.push_back(&request);
}

void WaitingQueue::remove(Request& request) {
  const auto found = std::find(requests_.begin(), requests_.end(), &request);
  CHORAL_CHECK(found != requests_.end(), "the request does not wait");
  *found = requests_.back();
  requests_.pop_back();
}

Request* WaitingQueue::next(uint64_t step) const {
  Request* best = nullptr;
  for (Request* request : requests_) {
    if (request->deferred_step == step) continue;
    if (best == nullptr || before(*request, *best)) best = request;
  }
  return best;
}

Request* WaitingQueue::longest_waiting() const {
  Request* longest = nullptr;
  for (Request* request : requests_) {
    if (longest == nullptr || request->last_progress_step < longest->last_progress_step ||
        (request->last_progress_step == longest->last_progress_step && request->arrival < longest->arrival)) {
      longest = request;
    }
  }
  return longest;
}

bool WaitingQueue::before(const Request& a, const Request& b) const {
  if (a.promoted != b.promoted) return a.promoted;
  if (policy_ == Policy::kPriority && a.priority != b.priority) return a.priority < b.priority;
  const bool a_preempted = a.status == RequestStatus::kPreempted, b_preempted = b.status == RequestStatus::kPreempted;
  if (a_preempted != b_preempted) return a_preempted;
  if (fair_adapters_ && a.share->virtual_tokens != b.share->virtual_tokens) {
    return a.share->virtual_tokens < b.share->virtual_tokens;
  }
  return a.arrival < b.arrival;
}

}  // namespace choral::sched
