// A "source" is a row of floats whose vectors are made while they are read: full(i) gives elements [i, i + Lanes), tail(i, rest)
// the last rest < Lanes of a row, followed by zeros. Loops over a source read each element once, in order, so that a source may
// write on the way. Fused kernels put a source where the unfused ones have a row in memory.
// Included once per Highway target (no include guard in the usual sense).
#if defined(CHORAL_ROW_SOURCE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORAL_ROW_SOURCE_INL
#undef CHORAL_ROW_SOURCE_INL
#else
#define CHORAL_ROW_SOURCE_INL
#endif

#include <hwy/highway.h>

#include "kernels/activation/activation_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {

struct LoadedRow {
  const float* x;
  HWY_INLINE VF full(int64_t i) const { return hn::LoadU(F32(), x + i); }
  HWY_INLINE VF tail(int64_t i, size_t rest) const { return load_tail(x + i, rest); }
};

template <class Source>
HWY_INLINE void write_row(const Source& row, int64_t count, float* y) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(row.full(i), d, y + i);
  if (i < count) store_tail(row.tail(i, count - i), y + i, count - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
