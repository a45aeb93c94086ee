#include "kernels/sampling/sampling_scan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sampling/sampling_scan.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "kernels/activation/activation_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr auto kStep = static_cast<int64_t>(hn::MaxLanes(F32()));

// The vector at i; past the end of the row its lanes hold `fill`.
HWY_INLINE VF load_or(const float* x, int64_t i, int64_t count, float fill) {
  const F32 d;
  if (i + kStep <= count) return hn::LoadU(d, x + i);
  alignas(64) float buffer[kStep];
  std::fill(buffer, buffer + kStep, fill);
  std::copy(x + i, x + count, buffer);
  return hn::Load(d, buffer);
}

HWY_INLINE int64_t first_lane(hn::Mask<F32> mask) { return static_cast<int64_t>(hn::FindFirstTrue(F32(), mask)); }

RowExtreme extreme(const float* x, int64_t count) {
  const F32 d;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  VF best0 = hn::Set(d, kLowest), best1 = best0;
  auto nan = hn::IsNaN(best0);
  for (int64_t i = 0; i < count; i += 2 * kStep) {
    const VF a = load_or(x, i, count, kLowest);
    const VF b = i + kStep < count ? load_or(x, i + kStep, count, kLowest) : best1;
    nan = hn::Or(nan, hn::Or(hn::IsNaN(a), hn::IsNaN(b)));
    best0 = hn::Max(best0, a);
    best1 = hn::Max(best1, b);
  }
  RowExtreme result;
  result.nan = !hn::AllFalse(d, nan);
  if (result.nan) return result;
  result.max = hn::GetLane(hn::MaxOfLanes(d, hn::Max(best0, best1)));
  const VF max = hn::Set(d, result.max);
  for (int64_t i = 0; i < count; i += kStep) {
    const auto equal = hn::Eq(load_or(x, i, count, std::numeric_limits<float>::quiet_NaN()), max);
    if (hn::AllFalse(d, equal)) continue;
    result.index = static_cast<int32_t>(i + first_lane(equal));
    break;
  }
  return result;
}

HWY_INLINE VF term(VF x, VF max, VF scale, VF threshold) {
  return hn::IfThenElseZero(hn::Ge(x, threshold), exp_negative(hn::Mul(hn::Sub(x, max), scale)));
}

double mass(const float* x, int64_t count, float max, float scale, float threshold, double* block_sums) {
  const F32 d;
  const VF m = hn::Set(d, max), s = hn::Set(d, scale), t = hn::Set(d, threshold);
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  double total = 0.0;
  for (int64_t begin = 0; begin < count; begin += kLogitBlock) {
    const int64_t end = std::min(begin + kLogitBlock, count);
    VF sum0 = hn::Zero(d), sum1 = sum0;
    for (int64_t i = begin; i < end; i += 2 * kStep) {
      sum0 = hn::Add(sum0, term(load_or(x, i, end, kNothing), m, s, t));
      if (i + kStep < end) sum1 = hn::Add(sum1, term(load_or(x, i + kStep, end, kNothing), m, s, t));
    }
    const auto sum = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1))));
    if (block_sums != nullptr) block_sums[begin / kLogitBlock] = sum;
    total += sum;
  }
  return total;
}

void terms(const float* x, int64_t count, float max, float scale, float threshold, float* out) {
  const F32 d;
  const VF m = hn::Set(d, max), s = hn::Set(d, scale), t = hn::Set(d, threshold);
  for (int64_t i = 0; i < count; i += kStep) {
    const VF value = term(load_or(x, i, count, 0.0f), m, s, t);
    i + kStep <= count ? hn::StoreU(value, d, out + i) : store_tail(value, out + i, count - i);
  }
}

int64_t next_above(const float* x, int64_t begin, int64_t count, float threshold) {
  const F32 d;
  const VF t = hn::Set(d, threshold);
  for (int64_t i = begin; i < count; i += kStep) {
    const auto above = hn::Gt(load_or(x, i, count, -std::numeric_limits<float>::infinity()), t);
    if (!hn::AllFalse(d, above)) return i + first_lane(above);
  }
  return count;
}

int64_t collect(const float* x, int64_t count, float threshold, int32_t* out) {
  const F32 d;
  const VF t = hn::Set(d, threshold);
  int64_t found = 0;
  for (int64_t i = 0; i < count; i += kStep) {
    if (hn::AllFalse(d, hn::Ge(load_or(x, i, count, std::numeric_limits<float>::quiet_NaN()), t))) continue;
    for (int64_t j = i; j < std::min(i + kStep, count); ++j) {
      out[found] = static_cast<int32_t>(j);
      found += x[j] >= threshold ? 1 : 0;
    }
  }
  return found;
}

LogitScan scan() { return {&extreme, &mass, &terms, &next_above, &collect}; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/highway_level.h"

namespace choral::kernels {

LogitScan logit_scan(CpuLevel level) { return CHORAL_AT_LEVEL(level, scan)(); }

}  // namespace choral::kernels
#endif  // HWY_ONCE
