#include "kernels/fused/qk_norm_rope.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused/qk_norm_rope.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/norm/rms_norm_inl.h"
#include "kernels/rotary/rotary_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

// Neighbouring heads of one token.
void rotate_token(float* x, int64_t heads, const RotaryTable& table, int64_t position) {
  rotate_heads(x, heads, table.head_dim(), table.cos_row(position), table.sin_row(position), table.rotary_dim() / 2,
               table.interleaved());
}
void norm_rotate_token(float* x, int64_t heads, const NormRow& norm, const RotaryTable& table, int64_t position) {
  const int64_t dim = norm.count;
  for (int64_t h = 0; h < heads; ++h) norm_row(x + h * dim, norm, x + h * dim);
  rotate_token(x, heads, table, position);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/checked_math.h"
#include "kernels/highway_level.h"
#include "kernels/norm/norm_row.h"
#include "kernels/task_size.h"

namespace choral::kernels {
namespace {

void check_shapes(const RotaryTable& table, int64_t tokens, MatrixView<float> q, int64_t heads, MatrixView<float> k,
                  int64_t kv_heads) {
  const int64_t dim = table.head_dim();
  CHORAL_CHECK(q.rows == tokens && q.cols == heads * dim && k.rows == tokens && k.cols == kv_heads * dim,
               "q, k and positions of a rotary embedding fit its table");
}

void check_position(const RotaryTable& table, int64_t position) {
  CHORAL_CHECK(position >= 0 && position < table.max_positions(), "a position lies in the rotary table");
}

}  // namespace

void qk_norm_rope(const Context& ctx, const QkNorm& norm, const RotaryTable& table, std::span<const int32_t> positions,
                  MatrixView<float> q, int64_t heads, MatrixView<float> k, int64_t kv_heads) {
  const auto tokens = std::ssize(positions);
  check_shapes(table, tokens, q, heads, k, kv_heads);
  const NormRow q_norm = norm_of_row(norm.q_weight, {}, norm.eps, table.head_dim());
  const NormRow k_norm = norm_of_row(norm.k_weight, {}, norm.eps, table.head_dim());
  const auto norm_rotate = CHORAL_AT_LEVEL(ctx.level, norm_rotate_token);
  const int64_t grain = pieces_per_task(kLightTask, q.cols + k.cols);
  ctx.pool.parallel_for(tokens, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      check_position(table, positions[t]);
      norm_rotate(q.row(t), heads, q_norm, table, positions[t]);
      norm_rotate(k.row(t), kv_heads, k_norm, table, positions[t]);
    }
  });
}

// A piece of work is some neighbouring tokens: all their rows, which lie in one piece of memory, and then one KV head after the
// other, so that its columns of the cache's keys stay in L1 while the tokens are written.
void rope_write_kv(const Context& ctx, const RotaryTable& table, std::span<const int32_t> positions, MatrixView<float> q,
                   int64_t heads, MatrixView<float> k, MatrixView<const float> v, const KvCacheView& cache,
                   std::span<const int64_t> slots) {
  const auto tokens = std::ssize(positions);
  check_shapes(table, tokens, q, heads, k, cache.kv_heads);
  CHORAL_CHECK(std::ssize(slots) == tokens && v.rows == tokens && v.cols == cache.kv_heads * cache.v_head_dim &&
                   cache.head_dim == table.head_dim(),
               "k, v and slots fit the cache");
  const auto rotate = CHORAL_AT_LEVEL(ctx.level, rotate_token);
  // A block of the cache, but no more than what gives every thread two pieces.
  const int64_t piece = std::clamp<int64_t>(tokens / (2 * ctx.pool.size()), 1, kKvBlockTokens);
  const int64_t grain = pieces_per_task(kLightTask, piece * (q.cols + k.cols));
  ctx.pool.parallel_for(ceil_div(tokens, piece), grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t first = begin * piece; first < std::min(end * piece, tokens); first += piece) {
      const int64_t last = std::min(first + piece, tokens);
      for (int64_t t = first; t < last; ++t) {
        check_position(table, positions[t]);
        rotate(q.row(t), heads, table, positions[t]);
        rotate(k.row(t), cache.kv_heads, table, positions[t]);
      }
      for (int64_t head = 0; head < cache.kv_heads; ++head) {
        for (int64_t t = first; t < last; ++t) {
          if (slots[t] < 0) continue;
          write_kv_head(ctx.level, cache, slots[t], head, k.row(t) + head * cache.head_dim, v.row(t) + head * cache.v_head_dim);
        }
      }
    }
  });
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
