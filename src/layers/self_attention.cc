#include "layers/self_attention.h"

#include <cmath>

namespace choral::layers {

SelfAttention::SelfAttention(Builder& builder, const Spec& spec)
    : rotary_(*spec.rotary),
      q_size_(spec.heads * spec.head_dim),
      kv_size_(spec.kv_heads * spec.head_dim),
      qkv_proj_(builder.make<QKVParallelLinear>({.prefix = spec.prefix + ".qkv_proj",
                                                 .in = spec.hidden,
                                                 .head_dim = spec.head_dim,
                                                 .heads = spec.heads,
                                                 .kv_heads = spec.kv_heads,
                                                 .bias = spec.qkv_bias})),
      attention_({.heads = spec.heads,
                  .kv_heads = spec.kv_heads,
                  .head_dim = spec.head_dim,
                  .scale = 1.0F / std::sqrt(static_cast<float>(spec.head_dim)),
                  .sliding_window = spec.sliding_window}),
      o_proj_(builder.make<RowParallelLinear>(
          {.prefix = spec.prefix + ".o_proj", .in = q_size_, .out = spec.hidden, .bias = spec.output_bias})) {
  if (!spec.qk_norm) return;
  q_norm_ = builder.make<RMSNorm>({.prefix = spec.prefix + ".q_norm", .size = spec.head_dim, .eps = spec.rms_norm_eps});
  k_norm_ = builder.make<RMSNorm>({.prefix = spec.prefix + ".k_norm", .size = spec.head_dim, .eps = spec.rms_norm_eps});
}

SelfAttention::Scratch SelfAttention::make_scratch(Graph& graph, const Spec& spec) {
  return {.qkv = graph.matrix((spec.heads + 2 * spec.kv_heads) * spec.head_dim), .out = graph.matrix(spec.heads * spec.head_dim)};
}

void SelfAttention::describe(Graph& graph, const Scratch& scratch, Value x, Value h) const {
  const Value q = scratch.qkv.columns(0, q_size_);
  const Value k = scratch.qkv.columns(q_size_, kv_size_);
  const Value v = scratch.qkv.columns(q_size_ + kv_size_, kv_size_);
  graph.add(LinearStep{qkv_proj_.get(), x, scratch.qkv, false});
  if (q_norm_) graph.add(HeadsNormStep{q_norm_.get(), q});
  if (k_norm_) graph.add(HeadsNormStep{k_norm_.get(), k});
  graph.add(RotaryStep{&rotary_, q, k});
  graph.add(WriteKvStep{&attention_, k, v});
  graph.add(AttendStep{&attention_, q, scratch.out});
  graph.add(LinearStep{o_proj_.get(), scratch.out, h, true});
}

}  // namespace choral::layers
