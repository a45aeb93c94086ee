#include "engine/heartbeat.h"

#include <algorithm>
#include <bit>

namespace choral::engine {
namespace {

constexpr double kQuietS = 30;            // whatever is computed: a machine that swaps, a debugger
constexpr double kPatience = 10;          // times what is expected
constexpr double kUnknownTokenS = 0.025;  // before any step was seen: a large model on few cores
constexpr double kFading = 0.01;          // of the longest step, with each that takes less

size_t size_class(int64_t tokens) {
  return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(tokens, 0))));
}

}  // namespace

Heartbeat::Heartbeat(Clock clock) : clock_(std::move(clock)), beat_s_(clock_()), turn_ended_s_(clock_()) {}

void Heartbeat::beat(int64_t step_tokens) {
  beat_s_.store(clock_(), std::memory_order_release);
  step_tokens_.store(step_tokens, std::memory_order_release);
}

void Heartbeat::end_step() {
  const double took_s = clock_() - beat_s_.load(std::memory_order_relaxed);
  auto& longest = step_s_[size_class(step_tokens_.load(std::memory_order_relaxed))];
  const double before_s = longest.load(std::memory_order_relaxed);
  longest.store(std::max(took_s, before_s + kFading * (took_s - before_s)), std::memory_order_relaxed);
  beat(kBetweenSteps);
}

void Heartbeat::end_turn() {
  beat(kIdle);
  turn_ended_s_.store(beat_s_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

EngineHeartbeat Heartbeat::now() const {
  const int64_t doing = step_tokens_.load(std::memory_order_acquire);
  const double beat_s = beat_s_.load(std::memory_order_acquire);
  const double now = clock_();
  return {.turn_age_s = std::max(0.0, now - turn_ended_s_.load(std::memory_order_relaxed)),
          .silent_s = doing == kIdle ? 0.0 : std::max(0.0, now - beat_s),
          .limit_s = doing > 0 ? step_limit_s(doing) : kQuietS,
          .step_tokens = std::max<int64_t>(doing, 0)};
}

// A step is held to those of its size; where none was seen, to smaller ones by their time for a token, or to larger ones.
double Heartbeat::step_limit_s(int64_t tokens) const {
  const size_t own = size_class(tokens);
  double expected_s = kUnknownTokenS * static_cast<double>(tokens);
  for (size_t size = own; size > 0; --size) {
    if (const double took_s = step_s_[size].load(std::memory_order_relaxed); took_s > 0) {
      const auto fewest = static_cast<double>(int64_t{1} << (size - 1));
      return kQuietS + kPatience * took_s * static_cast<double>(tokens) / fewest;
    }
  }
  for (size_t size = own + 1; size < step_s_.size(); ++size) {
    if (const double took_s = step_s_[size].load(std::memory_order_relaxed); took_s > 0) {
      expected_s = took_s;
      break;
    }
  }
  return kQuietS + kPatience * expected_s;
}

}  // namespace choral::engine
