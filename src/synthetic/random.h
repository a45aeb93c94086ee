// xorshift64*: fast, and good enough for numbers that nobody reads.
#pragma once

#include <cstdint>

namespace choral::synthetic {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1Du;
  }
  float uniform(float bound) { return (static_cast<float>(next() >> 40) * 0x1p-23f - 1.0f) * bound; }

 private:
  uint64_t state_;
};

}  // namespace choral::synthetic
