// Attention over the paged cache, in two steps: this step's keys and values are written, then queries attend. Holds its layer's
// share of the KV pool.
#pragma once

#include "layers/forward_batch.h"
#include "platform/ops/op_table.h"

namespace choral::layers {

class Attention {
 public:
  explicit Attention(const kernels::AttentionParams& params) : params_(params) {}

  const kernels::AttentionParams& params() const { return params_; }
  // Once, after the pool was allocated.
  void bind_kv_cache(const kernels::KvCacheView& cache) { cache_ = cache; }

  const kernels::KvCacheView& cache() const { return cache_; }

  // k and v [tokens, kv_heads·head_dim]
  void write(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> k,
             MatrixView<const float> v) const {
    ctx.ops.write_kv(ctx, cache_, k, v, batch.kv_slots);
  }
  // q [tokens, heads·head_dim] -> out [tokens, heads·head_dim]
  void attend(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> q, MatrixView<float> out) const {
    ctx.ops.paged_attention(ctx, params_, q, cache_, batch.sequences, {}, out);
  }

 private:
  kernels::AttentionParams params_;
  kernels::KvCacheView cache_;
};

}  // namespace choral::layers
