// Inputs of the tests of integers with float scales, made in code. Seeds make them the same in every run.
#pragma once

#include <random>
#include <vector>

#include "base/checked_math.h"
#include "base/float16.h"
#include "kernels/gemm/gemm_integers.h"
#include "kernels/ref/integer_gemm.h"

namespace choral::kernels {

// What the integers are: the ends of their range show sums that saturate or wrap.
enum class IntegerFill { kRandom, kLeast, kLargest, kAlternating };
inline constexpr IntegerFill kIntegerFills[] = {IntegerFill::kRandom, IntegerFill::kLeast, IntegerFill::kLargest,
                                                IntegerFill::kAlternating};

struct IntegerKind {
  IntegerOptions options;
  bool with_zeros;
};

// A weight as a checkpoint has it.
struct IntegerMatrixData {
  int64_t n, k;
  IntegerKind kind;
  std::vector<int8_t> q;
  std::vector<float> scales;   // [n, groups]
  std::vector<int16_t> zeros;  // [n, groups], or none

  int64_t group() const { return kind.options.group_size == 0 ? k : kind.options.group_size; }
  int64_t groups() const { return ceil_div(k, group()); }
  IntegerPart part() const {
    return {{{reinterpret_cast<const std::byte*>(q.data()), DType::kI8, Shape{n, k}, kCpuDevice}, {}}, scales, zeros};
  }
  ref::Integers reference() const {
    ref::Integers out{.q = {q.data(), n, k},
                      .group = group(),
                      .scales = {scales.data(), n, groups()},
                      .e2m1 = kind.options.codebook == Codebook::kE2M1};
    if (!zeros.empty()) out.zeros = {zeros.data(), n, groups()};
    return out;
  }
};

// Scales are bfloat16 numbers, as checkpoints have them.
inline IntegerMatrixData integer_matrix(int64_t n, int64_t k, const IntegerKind& kind, IntegerFill fill, uint32_t seed) {
  IntegerMatrixData out{n, k, kind, {}, {}, {}};
  std::mt19937 random(seed);
  const bool codes = kind.options.codebook != Codebook::kLinear;
  const int half = 1 << (kind.options.bits - 1);
  const int least = codes ? 0 : -half, largest = codes ? 15 : half - 1;
  for (int64_t i = 0; i < n * k; ++i) {
    const bool low = fill == IntegerFill::kLeast || (fill == IntegerFill::kAlternating && i % 2 == 0);
    const int q = fill == IntegerFill::kRandom ? least + static_cast<int>(random() % static_cast<unsigned>(2 * half))
                  : codes                      ? (low ? 15 : 7)  // -6 and 6
                  : low                        ? least
                                               : largest;
    out.q.push_back(static_cast<int8_t>(q));
  }
  std::uniform_real_distribution<float> scale(0.001f, 0.01f);
  for (int64_t i = 0; i < n * out.groups(); ++i) {
    out.scales.push_back(to_float(to_bfloat16(scale(random))));
    if (kind.with_zeros) {
      out.zeros.push_back(static_cast<int16_t>(least - 1 + static_cast<int>(random() % static_cast<unsigned>(2 * half + 2))));
    }
  }
  return out;
}

}  // namespace choral::kernels
