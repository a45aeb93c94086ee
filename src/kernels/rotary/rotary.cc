#include "kernels/rotary/rotary.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotary/rotary.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/rotary/rotary_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

void rotate_token(float* x, int64_t heads, int64_t head_dim, const float* cos, const float* sin, int64_t half, bool interleaved) {
  rotate_heads(x, heads, head_dim, cos, sin, half, interleaved);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/highway_level.h"
#include "kernels/task_size.h"

namespace choral::kernels {

void apply_rotary(const Context& ctx, const RotaryTable& table, std::span<const int32_t> positions, MatrixView<float> q,
                  int64_t heads, MatrixView<float> k, int64_t kv_heads) {
  const auto tokens = std::ssize(positions);
  const int64_t dim = table.head_dim(), half = table.rotary_dim() / 2;
  CHORAL_CHECK(q.rows == tokens && q.cols == heads * dim && (kv_heads == 0 || (k.rows == tokens && k.cols == kv_heads * dim)),
               "q, k and positions of a rotary embedding fit its table");
  const auto rotate = CHORAL_AT_LEVEL(ctx.level, rotate_token);
  ctx.pool.parallel_for(tokens, pieces_per_task(kLightTask, (heads + kv_heads) * dim), [&](int64_t begin, int64_t end, int) {
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
