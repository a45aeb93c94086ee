// Passes over a whole row of logits, compiled once per Highway target; sampling.cc composes them. No state, no allocation.
#pragma once

#include <cstdint>
#include <span>

#include "base/cpu_level.h"

namespace choral::kernels {

struct RowExtreme {
  float max = 0.0f;   // −inf if no logit is above
  int32_t index = 0;  // of the first logit equal to max
  bool nan = false;   // some logit is NaN; max and index then mean nothing
};

inline constexpr int64_t kLogitBlock = 256;

struct LogitScan {
  RowExtreme (*extreme)(const float* x, int64_t count);
  // Σ e^((x − max) · scale) over logits x >= threshold: blocks of kLogitBlock in float, their sums in double. Each block's sum
  // goes to `block_sums` unless that is null.
  double (*mass)(const float* x, int64_t count, float max, float scale, float threshold, double* block_sums);
  // Those terms, in order; 0 below the threshold.
  void (*terms)(const float* x, int64_t count, float max, float scale, float threshold, float* out);
  // The first index >= begin with x > threshold, or count.
  int64_t (*next_above)(const float* x, int64_t begin, int64_t count, float threshold);
  // Indices of x >= threshold in ascending order; returns how many. `out` has room for `count`.
  int64_t (*collect)(const float* x, int64_t count, float threshold, int32_t* out);
};
LogitScan logit_scan(CpuLevel level);

}  // namespace choral::kernels
