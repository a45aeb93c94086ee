// How long a thread waits awake for another one before it sleeps. To wake a sleeper costs the other a system call and the sleeper
// some microseconds, so short waits are spent awake: a moment with pauses, then giving the CPU to whoever wants it at every look.
// On a machine with more runnable threads than CPUs that is the one waited for, as often as not.
// It learns: as long as waits end before the budget does it stays, a wait that was longer halves it. So a thread that waits for
// what takes long (a device that computes, a CPU that somebody else has) soon burns next to nothing. One thread's own.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include "base/cpu_pause.h"

namespace choral {

class SpinBudget {
 public:
  // Pauses alone: longer than the gap between two operations of a step. Then awake: longer than most gaps between two steps, and
  // about twice what a sleep costs where a halted CPU has to be woken.
  static constexpr int64_t kPausesNs = 25'000, kMostNs = 100'000;

  int64_t ns() const { return budget_ns_; }
  // A wait is over that took so long, awake or not.
  void learn(int64_t waited_ns) { budget_ns_ = waited_ns <= kMostNs ? kMostNs : std::max(budget_ns_ / 2, kPausesNs); }

  // Waits until is_over(): awake as long as the budget reaches, then by sleep(), which may return for no reason.
  template <class IsOver, class Sleep>
  void wait(const IsOver& is_over, const Sleep& sleep) {
    if (looks(is_over)) return;
    const int64_t start = now_ns();
    int64_t waited = 0;
    while (!looks(is_over)) {
      waited = now_ns() - start;
      if (waited >= budget_ns_) {
        sleep();
      } else if (waited >= kPausesNs) {
        std::this_thread::yield();
      }
    }
    learn(waited < budget_ns_ ? 0 : now_ns() - start);
  }

 private:
  static constexpr int kLooks = 16;  // between two readings of the clock

  template <class IsOver>
  static bool looks(const IsOver& is_over) {
    for (int i = 0; i < kLooks; ++i) {
      if (is_over()) return true;
      cpu_pause();
    }
    return false;
  }
  static int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  int64_t budget_ns_ = kMostNs;
};

}  // namespace choral
