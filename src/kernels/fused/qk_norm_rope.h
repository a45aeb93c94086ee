// What happens to q, k and v between their projection and attention, two steps in one pass over the tokens:
//   q, k = rms_norm of each head by itself (Qwen3, Gemma 3);  q, k = rotary(q), rotary(k);  k and v go to the paged cache.
// q [tokens, heads · head_dim], k [tokens, kv_heads · head_dim], v [tokens, kv_heads · v_head_dim] are views: column ranges of
// one qkv matrix, say. q and k are changed in place. Bits are those of rms_norm_heads, apply_rotary and write_kv one after the
// other. Pure functions; tokens are divided over ctx.pool.
#pragma once

#include <span>

#include "kernels/attention/kv_cache.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/rotary/rotary.h"

namespace choral::kernels {

// Weights [head_dim].
struct QkNorm {
  std::span<const float> q_weight;
  std::span<const float> k_weight;
  float eps = 1e-6f;
};

// positions [tokens], each in [0, table.max_positions()); head_dim is the table's.
void qk_norm_rope(const Context& ctx, const QkNorm& norm, const RotaryTable& table, std::span<const int32_t> positions,
                  MatrixView<float> q, int64_t heads, MatrixView<float> k, int64_t kv_heads);

// slots [tokens] as for write_kv: distinct; a negative one is not written, but its q and k are rotated.
void rope_write_kv(const Context& ctx, const RotaryTable& table, std::span<const int32_t> positions, MatrixView<float> q,
                   int64_t heads, MatrixView<float> k, MatrixView<const float> v, const KvCacheView& cache,
                   std::span<const int64_t> slots);

}  // namespace choral::kernels
