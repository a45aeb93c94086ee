// Requests that wait for admission, fresh and preempted ones. Order: a promoted request, then (Policy::kPriority) the lower
// priority value, then preempted before fresh, then (fair_adapters) the adapter served least, then arrival. The adapters'
// accounts move with every token, so the next one is searched, not kept sorted: a scan of a bounded queue, once for each
// admission. Holds no ownership. Nothing allocates after the constructor. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sched/request.h"
#include "sched/scheduler_config.h"

namespace choral::sched {

// True when a goes before b among *running* requests: promoted, priority, arrival. The last in this order is preempted first.
bool more_urgent(const Request& a, const Request& b, Policy policy);

class WaitingQueue {
 public:
  explicit WaitingQueue(const SchedulerConfig& config);

  bool empty() const { return requests_.empty(); }
  int32_t size() const { return static_cast<int32_t>(requests_.size()); }
  std::span<Request* const> requests() const { return requests_; }

  void push(Request& request);
  void remove(Request& request);

  // The one to admit next, except those deferred in this step; nullptr when there is none.
  Request* next(uint64_t step) const;
  // The one that is longest without progress.
  Request* longest_waiting() const;

 private:
  bool before(const Request& a, const Request& b) const;

  Policy policy_;
  bool fair_adapters_;
  std::vector<Request*> requests_;
};

}  // namespace choral::sched
