// What the kernels of one row of RMSNorm are given.
#pragma once

#include <cstdint>
#include <span>

#include "base/check.h"

namespace choral::kernels {

struct NormRow {
  const float* weight;  // [count]
  const float* bias;    // [count] or null
  float eps;
  int64_t count;
};

inline NormRow norm_of_row(std::span<const float> weight, std::span<const float> bias, float eps, int64_t count) {
  CHORAL_CHECK(std::ssize(weight) == count && (bias.empty() || std::ssize(bias) == count),
               "a norm's weight and bias fit the row");
  return {weight.data(), bias.empty() ? nullptr : bias.data(), eps, count};
}

}  // namespace choral::kernels
