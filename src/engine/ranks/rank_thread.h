// The thread of one rank of a model: it runs one piece of work at a time while the caller does its own. Between two steps it
// waits awake for a moment, then asleep.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "base/spin_budget.h"
#include "base/status.h"

namespace choral::engine {

class RankThread {
 public:
  static Result<std::unique_ptr<RankThread>> start(int rank);
  ~RankThread();

  // `work` lives until wait() returns.
  void begin(const std::function<void()>& work);
  void wait();

 private:
  enum class State : uint32_t { kIdle, kWorks, kEnds };
  RankThread() = default;
  void run();

  const std::function<void()>* work_ = nullptr;
  std::atomic<State> state_{State::kIdle};
  SpinBudget callers_;
  std::thread thread_;
};

}  // namespace choral::engine
