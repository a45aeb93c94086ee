#include "kernels/rotary.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotary.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/activation_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE void rotate(VF& a, VF& b, VF cos, VF sin) {
  const VF rotated = hn::NegMulAdd(b, sin, hn::Mul(a, cos));
  b = hn::MulAdd(a, sin, hn::Mul(b, cos));
  a = rotated;
}

void rotate_half_split(float* x, const float* cos, const float* sin, int64_t half) {
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

void rotate_interleaved(float* x, const float* cos, const float* sin, int64_t half) {
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
void rotate_heads(float* x, int64_t heads, int64_t head_dim, const float* cos, const float* sin, int64_t half, bool interleaved) {
  for (int64_t h = 0; h < heads; ++h) {
    interleaved ? rotate_interleaved(x + h * head_dim, cos, sin, half) : rotate_half_split(x + h * head_dim, cos, sin, half);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/highway_level.h"

namespace choral::kernels {

void apply_rotary(const Context& ctx, const RotaryTable& table, std::span<const int32_t> positions, MatrixView<float> q,
                  int64_t heads, MatrixView<float> k, int64_t kv_heads) {
  const auto tokens = static_cast<int64_t>(positions.size());
  const int64_t dim = table.head_dim(), half = table.rotary_dim() / 2;
  CHORAL_CHECK(q.rows == tokens && q.cols == heads * dim && (kv_heads == 0 || (k.rows == tokens && k.cols == kv_heads * dim)),
               "q, k and positions of a rotary embedding fit its table");
  const auto rotate = CHORAL_AT_LEVEL(ctx.level, rotate_heads);
  const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>((heads + kv_heads) * dim, 1));
  ctx.pool.parallel_for(tokens, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t position = positions[t];
      CHORAL_CHECK(position >= 0 && position < table.max_positions(), "a position lies in the rotary table");
      const float* cos = table.cos_row(position);
      const float* sin = table.sin_row(position);
      rotate(q.row(t), heads, dim, cos, sin, half, table.interleaved());
      if (kv_heads > 0) rotate(k.row(t), kv_heads, dim, cos, sin, half, table.interleaved());
    }
  });
}

void apply_rotary(const Context& ctx, const RotaryTable& table, std::span<const int32_t> positions, MatrixView<float> x,
                  int64_t heads) {
  apply_rotary(ctx, table, positions, x, heads, {}, 0);
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
