// Rotary embedding of heads on vectors, shared by rotary.cc and the fused kernels so that all of them give the same bits.
// Included once per Highway target (no include guard in the usual sense).
#if defined(CHORAL_ROTARY_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORAL_ROTARY_INL
#undef CHORAL_ROTARY_INL
#else
#define CHORAL_ROTARY_INL
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "kernels/activation/activation_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE void rotate(VF& a, VF& b, VF cos, VF sin) {
  const VF rotated = hn::NegMulAdd(b, sin, hn::Mul(a, cos));
  b = hn::MulAdd(a, sin, hn::Mul(b, cos));
  a = rotated;
}

inline void rotate_half_split(float* x, const float* cos, const float* sin, int64_t half) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    VF a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + half + i);
    rotate(a, b, hn::LoadU(d, cos + i), hn::LoadU(d, sin + i));
    hn::StoreU(a, d, x + i);
    hn::StoreU(b, d, x + half + i);
  }
  if (i < half) {
    const auto rest = static_cast<size_t>(half - i);
    VF a = load_tail(x + i, rest), b = load_tail(x + half + i, rest);
    rotate(a, b, load_tail(cos + i, rest), load_tail(sin + i, rest));
    store_tail(a, x + i, rest);
    store_tail(b, x + half + i, rest);
  }
}

inline void rotate_interleaved(float* x, const float* cos, const float* sin, int64_t half) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  VF a, b;
  int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
    rotate(a, b, hn::LoadU(d, cos + i), hn::LoadU(d, sin + i));
    hn::StoreInterleaved2(a, b, d, x + 2 * i);
  }
  if (i < half) {
    const auto rest = static_cast<size_t>(half - i);
    alignas(64) float pairs[2 * HWY_MAX_BYTES / sizeof(float)] = {};
    std::copy(x + 2 * i, x + 2 * half, pairs);
    hn::LoadInterleaved2(d, pairs, a, b);
    rotate(a, b, load_tail(cos + i, rest), load_tail(sin + i, rest));
    hn::StoreInterleaved2(a, b, d, pairs);
    std::copy(pairs, pairs + 2 * rest, x + 2 * i);
  }
}

// Every head of one token.
inline void rotate_heads(float* x, int64_t heads, int64_t head_dim, const float* cos, const float* sin, int64_t half,
                         bool interleaved) {
  for (int64_t h = 0; h < heads; ++h) {
    interleaved ? rotate_interleaved(x + h * head_dim, cos, sin, half) : rotate_half_split(x + h * head_dim, cos, sin, half);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
