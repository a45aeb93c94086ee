#include "sched/waiting_queue.h"

#include <algorithm>

#include "base/check.h"
#include "sched/fair_share.h"

namespace choral::sched {

bool more_urgent(const Request& a, const Request& b, Policy policy) {
  if (a.promoted != b.promoted) return a.promoted;
  if (a.in_background != b.in_background) return b.in_background;
  if (policy == Policy::kPriority && a.priority != b.priority) return a.priority < b.priority;
  return a.arrival < b.arrival;
}

namespace {

bool is_deferred(const Request& request, uint64_t step) {
  return request.deferred_step == step || (!request.holds_adapter && request.share->deferred_step == step);
}

}  // namespace

WaitingQueue::WaitingQueue(const SchedulerConfig& config) : policy_(config.policy), fair_adapters_(config.fair_adapters) {
  const size_t most = static_cast<size_t>(config.max_waiting) + static_cast<size_t>(config.max_num_seqs);
  requests_.reserve(most);
  candidates_.reserve(most);
}

void WaitingQueue::push(Request& request) {
  CHORAL_CHECK(requests_.size() < requests_.capacity(), "waiting queue grows beyond what was reserved");
  requests_.push_back(&request);
  sequences_ += request.width();
  tokens_ += request.token_count();
  predicted_tokens_ += request.predicted_count;
  candidates_valid_ = false;
}

void WaitingQueue::remove(Request& request) {
  const auto found = std::find(requests_.begin(), requests_.end(), &request);
  CHORAL_CHECK(found != requests_.end(), "the request does not wait");
  sequences_ -= request.width();
  tokens_ -= request.token_count();
  predicted_tokens_ -= request.predicted_count;
  *found = requests_.back();
  requests_.pop_back();
  if (candidates_valid_ && !candidates_.empty() && candidates_.front().request == &request) {
    pop_candidate();
  } else {
    candidates_valid_ = false;
  }
}

Request* WaitingQueue::next(uint64_t step) {
  if (!candidates_valid_ || candidates_step_ != step) {
    candidates_.clear();
    for (Request* request : requests_) {
      if (!is_deferred(*request, step)) candidates_.push_back({request, request->share->virtual_tokens()});
    }
    std::make_heap(candidates_.begin(), candidates_.end(),
                   [this](const Candidate& a, const Candidate& b) { return before(b, a); });
    candidates_step_ = step;
    candidates_valid_ = true;
  }
  while (!candidates_.empty()) {
    const Candidate best = candidates_.front();
    if (is_deferred(*best.request, step)) {
      pop_candidate();
    } else if (best.virtual_tokens != best.request->share->virtual_tokens()) {
      // Somebody of the same adapter was admitted meanwhile. Accounts only grow, so whoever is in front with its true account is
      // really the next.
      pop_candidate();
      push_candidate(*best.request);
    } else {
      return best.request;
    }
  }
  return nullptr;
}

Request* WaitingQueue::take_candidate(uint64_t step) {
  Request* request = next(step);
  if (request != nullptr) pop_candidate();
  return request;
}

int32_t WaitingQueue::deferred_count(uint64_t step) const {
  return static_cast<int32_t>(
      std::count_if(requests_.begin(), requests_.end(), [step](const Request* request) { return is_deferred(*request, step); }));
}

void WaitingQueue::push_candidate(Request& request) {
  candidates_.push_back({&request, request.share->virtual_tokens()});
  std::push_heap(candidates_.begin(), candidates_.end(), [this](const Candidate& a, const Candidate& b) { return before(b, a); });
}

void WaitingQueue::pop_candidate() {
  std::pop_heap(candidates_.begin(), candidates_.end(), [this](const Candidate& a, const Candidate& b) { return before(b, a); });
  candidates_.pop_back();
}

Request* WaitingQueue::longest_waiting() const {
  Request* longest = nullptr;
  for (Request* request : requests_) {
    if (request->in_background) continue;
    if (longest == nullptr || request->last_progress_step < longest->last_progress_step ||
        (request->last_progress_step == longest->last_progress_step && request->arrival < longest->arrival)) {
      longest = request;
    }
  }
  return longest;
}

bool WaitingQueue::before(const Candidate& x, const Candidate& y) const {
  const Request &a = *x.request, &b = *y.request;
  if (a.promoted != b.promoted) return a.promoted;
  if (a.in_background != b.in_background) return b.in_background;
  if (policy_ == Policy::kPriority && a.priority != b.priority) return a.priority < b.priority;
  const bool a_preempted = a.status == RequestStatus::kPreempted, b_preempted = b.status == RequestStatus::kPreempted;
  if (a_preempted != b_preempted) return a_preempted;
  if (fair_adapters_ && x.virtual_tokens != y.virtual_tokens) return x.virtual_tokens < y.virtual_tokens;
  return a.arrival < b.arrival;
}

}  // namespace choral::sched
