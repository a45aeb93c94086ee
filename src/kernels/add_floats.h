// to[i] += from[i], of floats that do not overlap.
#pragma once

#include <cstdint>

namespace choral::kernels {

inline void add_floats(const float* __restrict from, float* __restrict to, int64_t count) {
  constexpr int64_t kAtOnce = 16;  // a number that the compiler knows, or it takes one after the other
  int64_t i = 0;
  for (; i + kAtOnce <= count; i += kAtOnce) {
    for (int64_t j = 0; j < kAtOnce; ++j) to[i + j] += from[i + j];
  }
  for (; i < count; ++i) to[i] += from[i];
}

}  // namespace choral::kernels
