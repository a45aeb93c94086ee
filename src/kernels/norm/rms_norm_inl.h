// Rows of RMSNorm on vectors, shared by rms_norm.cc and the fused kernels so that all of them give the same bits.
// Included once per Highway target (no include guard in the usual sense).
// Sources: row_source_inl.h.
#if defined(CHORAL_RMS_NORM_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORAL_RMS_NORM_INL
#undef CHORAL_RMS_NORM_INL
#else
#define CHORAL_RMS_NORM_INL
#endif

#include <hwy/highway.h>

#include <cmath>

#include "kernels/norm/norm_row.h"
#include "kernels/row_source_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {

// residual += x on the way.
struct AddedRow {
  const float* x;
  float* residual;
  HWY_INLINE VF full(int64_t i) const {
    const F32 d;
    const VF sum = hn::Add(hn::LoadU(d, residual + i), hn::LoadU(d, x + i));
    hn::StoreU(sum, d, residual + i);
    return sum;
  }
  HWY_INLINE VF tail(int64_t i, size_t rest) const {
    const VF sum = hn::Add(load_tail(residual + i, rest), load_tail(x + i, rest));
    store_tail(sum, residual + i, rest);
    return sum;
  }
};

// Σ x² in four chains of vectors: element i goes to chain (i / lanes) % 4, whatever the caller; a row's tail counts as a whole
// vector. Each element of the source is read once, in order.
template <class Source>
HWY_INLINE float sum_of_squares(const Source& row, int64_t count) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  VF s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const VF a = row.full(i), b = row.full(i + lanes);
    const VF c = row.full(i + 2 * lanes), e = row.full(i + 3 * lanes);
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
    s2 = hn::MulAdd(c, c, s2);
    s3 = hn::MulAdd(e, e, s3);
  }
  for (; i < count; i += lanes) {
    const VF a = i + lanes <= count ? row.full(i) : row.tail(i, count - i);
    const VF sum = hn::MulAdd(a, a, s0);  // chains take turns
    s0 = s1, s1 = s2, s2 = s3, s3 = sum;
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// (x · factor) · w (+ bias, if it is not null): the norm's row once the sum of squares is known.
struct NormedRow {
  const float *x, *w, *bias;
  VF factor;

  NormedRow(const float* row, const NormRow& norm, float squares)
      : x(row),
        w(norm.weight),
        bias(norm.bias),
        factor(hn::Set(F32(), 1.0f / std::sqrt(squares / static_cast<float>(norm.count) + norm.eps))) {}

  HWY_INLINE VF full(int64_t i) const {
    const F32 d;
    const VF y = hn::Mul(hn::Mul(hn::LoadU(d, x + i), factor), hn::LoadU(d, w + i));
    return bias == nullptr ? y : hn::Add(y, hn::LoadU(d, bias + i));
  }
  HWY_INLINE VF tail(int64_t i, size_t rest) const {
    const VF y = hn::Mul(hn::Mul(load_tail(x + i, rest), factor), load_tail(w + i, rest));
    return bias == nullptr ? y : hn::Add(y, load_tail(bias + i, rest));
  }
};

// y may be x.
inline void norm_row(const float* x, const NormRow& norm, float* y) {
  write_row(NormedRow(x, norm, sum_of_squares(LoadedRow{x}, norm.count)), norm.count, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
