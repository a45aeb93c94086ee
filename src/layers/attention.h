// Attention over the paged cache, in two steps: this step's keys and values are written, then queries attend. Holds its layer's
// share of the KV pool.
#pragma once

#include "layers/attention_sinks.h"
#include "layers/forward_batch.h"
#include "platform/ops/op_table.h"

namespace choral::layers {

// What one token leaves in the cache of one layer: `kv_heads` keys of `key_dim` elements and values of `value_dim`. Later tokens
// see it as long as it is one of the last `window`, their own included; 0: always.
struct KvShape {
  int64_t kv_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t window = 0;
  bool values_in_keys = false;  // a value is the first value_dim elements of its key, and stored with it

  int64_t stored_value_dim() const { return values_in_keys ? 0 : value_dim; }
};

// A layer's share of the KV pool.
struct KvBinding {
  kernels::KvCacheView cache;
  int32_t group = 0;  // of the layers whose blocks lie side by side, see ForwardBatch::kv_groups
};

class Attention {
 public:
  // `sinks` outlives it; null: none.
  Attention(const kernels::AttentionParams& params, int64_t value_dim, const AttentionSinks* sinks = nullptr)
      : params_(params), kv_shape_{params.kv_heads, params.head_dim, value_dim, params.sliding_window}, sinks_(sinks) {}
  // One whose values are the first `value_dim` elements of the keys.
  static Attention over_latents(const kernels::AttentionParams& params, int64_t value_dim) {
    Attention attention(params, value_dim);
    attention.kv_shape_.values_in_keys = true;
    return attention;
  }

  const kernels::AttentionParams& params() const { return params_; }
  const KvShape& kv_shape() const { return kv_shape_; }
  // Once, after the pool was allocated.
  void bind_kv_cache(const KvBinding& binding) { kv_ = binding; }

  const kernels::KvCacheView& cache() const { return kv_.cache; }
  const KvRows& rows(const ForwardBatch& batch) const { return batch.kv_groups[kv_.group]; }

  // k [tokens, kv_heads·key_dim], v [tokens, kv_heads·value_dim], or empty over latents
  void write(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> k,
             MatrixView<const float> v) const {
    ctx.ops.write_kv(ctx, cache(), k, v, rows(batch).slots);
  }
  // q [tokens, heads·key_dim] -> out [tokens, heads·value_dim]
  void attend(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> q, MatrixView<float> out) const {
    const auto sinks = sinks_ == nullptr ? std::span<const float>() : sinks_->values();
    ctx.ops.paged_attention(ctx, params_, q, cache(), rows(batch).sequences, sinks, out);
  }

 private:
  kernels::AttentionParams params_;
  KvShape kv_shape_;
  const AttentionSinks* sinks_;
  KvBinding kv_;
};

}  // namespace choral::layers
