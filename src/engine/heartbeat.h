// What the engine's loop is at. Its thread writes it, and any other reads it at once, without waiting for a step. The limit on
// the loop's silence grows with its step's tokens, by how long steps took so far.
// One thread writes, in the order of its loop; any thread reads. Allocates nothing and takes no lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "choral/llm.h"

namespace choral::engine {

class Heartbeat {
 public:
  explicit Heartbeat(Clock clock);

  void begin_turn() { beat(kBetweenSteps); }
  void begin_step(int64_t tokens) { beat(tokens); }
  void end_step();
  void end_turn();  // the next turn may begin at once, or when there is work again

  EngineHeartbeat now() const;
  // The longest that a step of so many tokens may take before something is taken to be wrong.
  double step_limit_s(int64_t tokens) const;

 private:
  static constexpr int64_t kIdle = -1, kBetweenSteps = 0;  // of step_tokens_

  void beat(int64_t step_tokens);

  const Clock clock_;
  std::atomic<double> beat_s_;  // the last sign of life; written before what it is a sign of, and read behind it
  std::atomic<int64_t> step_tokens_{kIdle};
  std::atomic<double> turn_ended_s_;
  // How long a step took, by the bits of its tokens: the longest, which fades. 0: none was seen.
  std::array<std::atomic<double>, 64> step_s_{};
};

}  // namespace choral::engine
