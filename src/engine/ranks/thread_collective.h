// Ranks that are threads of one process: each copies what it lacks out of the others' matrices.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/spin_budget.h"
#include "platform/collective.h"

namespace choral::engine {

class ThreadCollectives {
 public:
  explicit ThreadCollectives(int ranks);
  ~ThreadCollectives();

  int ranks() const { return static_cast<int>(ranks_.size()); }
  platform::Collective& of(int rank);

  // While no rank is in a step.
  void begin_step();
  // A rank leaves its step before its end. What the others compute is of no use from then on, and nobody waits for it.
  void give_up();

 private:
  class Rank;

  // Returns when all ranks have called it as often; false when somebody gave up.
  bool meet(SpinBudget& budget);

  std::vector<std::unique_ptr<Rank>> ranks_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> meetings_{0};
  std::atomic<bool> given_up_{false};
};

}  // namespace choral::engine
