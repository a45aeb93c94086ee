// Attention over the paged cache: writes this step's keys and values, then attends. Holds its layer's share of the KV pool.
#pragma once

#include "layers/forward_batch.h"
#include "platform/op_table.h"

namespace choral::layers {

class Attention {
 public:
  explicit Attention(const kernels::AttentionParams& params) : params_(params) {}

  const kernels::AttentionParams& params() const { return params_; }
  // Once, after the pool was allocated.
  void bind_kv_cache(const kernels::KvCacheView& cache) { cache_ = cache; }

  // q [tokens, heads·head_dim], k and v [tokens, kv_heads·head_dim] -> out [tokens, heads·head_dim]
  void forward(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> q, MatrixView<const float> k,
               MatrixView<const float> v, MatrixView<float> out) const {
    ctx.ops.write_kv(ctx, cache_, k, v, batch.kv_slots);
    ctx.ops.paged_attention(ctx, params_, q, cache_, batch.sequences, out);
  }

 private:
  kernels::AttentionParams params_;
  kernels::KvCacheView cache_;
};

}  // namespace choral::layers
