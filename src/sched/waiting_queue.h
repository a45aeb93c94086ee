// Requests that wait for admission, fresh and preempted ones. Their order: a promoted request, then those that are not in the
// background, then (Policy::kPriority) the lower priority value, then preempted before fresh, then (fair_adapters) the adapter
// served least, then arrival.
// The adapters' accounts move with every token, so no order is kept. A heap is built once a step, when the first is asked for; a
// step that must pass over many (their adapters are not in memory) costs n + k·log n. Holds no ownership. Nothing allocates after
// the constructor. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sched/request.h"
#include "sched/scheduler_config.h"

namespace choral::sched {

// True when a goes before b among *running* requests: promoted, not in the background, priority, arrival. The last in this order
// is preempted first.
bool more_urgent(const Request& a, const Request& b, Policy policy);

class WaitingQueue {
 public:
  explicit WaitingQueue(const SchedulerConfig& config);

  bool empty() const { return requests_.empty(); }
  int32_t size() const { return static_cast<int32_t>(requests_.size()); }
  int32_t sequences() const { return sequences_; }  // with followers
  int64_t tokens() const { return tokens_; }        // of all, their outputs too: a waiting request gets none
  int64_t predicted_tokens() const { return predicted_tokens_; }
  std::span<Request* const> requests() const { return requests_; }

  void push(Request& request);
  void remove(Request& request);

  // The one to admit next, except those deferred in this step (themselves, or their adapter unless they hold it); nullptr when
  // there is none. Between two calls for one step the accounts may only grow.
  Request* next(uint64_t step);
  // The same, and takes it out: of this step it is not asked for again. Once this is called, next() is not, in this step.
  Request* take_candidate(uint64_t step);
  int32_t deferred_count(uint64_t step) const;
  // The one that is longest without progress, of those that are not in the background.
  Request* longest_waiting() const;

 private:
  struct Candidate {
    Request* request = nullptr;
    int64_t virtual_tokens = 0;  // of its account, when it was put here
  };
  bool before(const Candidate& a, const Candidate& b) const;
  void push_candidate(Request& request);
  void pop_candidate();

  Policy policy_;
  bool fair_adapters_;
  std::vector<Request*> requests_;
  int32_t sequences_ = 0;
  int64_t tokens_ = 0, predicted_tokens_ = 0;
  std::vector<Candidate> candidates_;  // a heap, the next one in front; of step candidates_step_
  uint64_t candidates_step_ = 0;
  bool candidates_valid_ = false;
};

}  // namespace choral::sched
