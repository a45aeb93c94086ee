#include "layers/sharing_attention.h"

namespace choral::layers {
namespace {

using KeysAndValues = SharingAttention::KeysAndValues;

std::unique_ptr<LinearBase> make_projection(Builder& builder, const SharingAttention::Spec& spec) {
  const int64_t q = spec.heads * spec.head_dim, kv = spec.kv_heads * spec.head_dim;
  switch (spec.keys_and_values) {
    case KeysAndValues::kAnotherLayers:
      return builder.make<ColumnParallelLinear>(
          {.prefix = spec.prefix + ".q_proj", .in = spec.hidden, .out = q, .bias = spec.bias});
    case KeysAndValues::kKeysAreValues:
      return builder.make<MergedColumnParallelLinear>({.prefix = spec.prefix + ".qk_proj",
                                                       .in = spec.hidden,
                                                       .members = {"q_proj", "k_proj"},
                                                       .out = {q, kv},
                                                       .bias = spec.bias});
    case KeysAndValues::kBoth: break;
  }
  return builder.make<QKVParallelLinear>({.prefix = spec.prefix + ".qkv_proj",
                                          .in = spec.hidden,
                                          .head_dim = spec.head_dim,
                                          .heads = spec.heads,
                                          .kv_heads = spec.kv_heads,
                                          .bias = spec.bias});
}

}  // namespace

SharingAttention::SharingAttention(Builder& builder, const Spec& spec)
    : rotary_(*spec.rotary),
      keys_and_values_(spec.keys_and_values),
      head_dim_(spec.head_dim),
      q_size_(spec.heads * spec.head_dim),
      kv_size_(spec.kv_heads * spec.head_dim),
      projection_(make_projection(builder, spec)),
      attention_({.heads = spec.heads,
                  .kv_heads = spec.kv_heads,
                  .head_dim = spec.head_dim,
                  .scale = spec.scale,
                  .sliding_window = spec.sliding_window},
                 /*value_dim=*/spec.head_dim),
      o_proj_(builder.make<RowParallelLinear>(
          {.prefix = spec.prefix + ".o_proj", .in = q_size_, .out = spec.hidden, .bias = spec.bias})) {
  const auto norm = [&](std::string_view name, bool weighted) {
    return builder.make<RMSNorm>({.prefix = fmt::format("{}.{}", spec.prefix, name),
                                  .size = spec.head_dim,
                                  .eps = spec.rms_norm_eps,
                                  .weighted = weighted});
  };
  q_norm_ = norm("q_norm", true);
  if (keys_and_values_ == KeysAndValues::kAnotherLayers) return;
  k_norm_ = norm("k_norm", true);
  v_norm_ = norm("v_norm", false);
}

void SharingAttention::describe(Graph& graph, Value x, const Output& out) const {
  const bool shares = keys_and_values_ == KeysAndValues::kAnotherLayers;
  const Value made = graph.matrix(projection_->out_features()), attended = graph.matrix(q_size_);
  const Value q = made.columns(0, q_size_), k = made.columns(q_size_, shares ? 0 : kv_size_);
  graph.add(LinearStep{projection_.get(), x, made, false});
  Value v;
  if (keys_and_values_ == KeysAndValues::kBoth) {
    v = made.columns(q_size_ + kv_size_, kv_size_);
    graph.add(HeadsNormStep{v_norm_.get(), v});
  } else if (!shares) {
    v = graph.matrix(kv_size_);  // of the keys as they were projected
    for (int64_t i = 0; i < kv_size_; i += head_dim_) {
      graph.add(NormStep{v_norm_.get(), k.columns(i, head_dim_), v.columns(i, head_dim_)});
    }
  }
  graph.add(HeadsNormStep{q_norm_.get(), q});
  if (!shares) graph.add(HeadsNormStep{k_norm_.get(), k});
  graph.add(RotaryStep{&rotary_, q, k});
  if (!shares) graph.add(WriteKvStep{&attention_, k, v});
  graph.add(AttendStep{&attention_, q, attended});
  graph.add(LinearStep{o_proj_.get(), attended, out.y, out.add});
}

}  // namespace choral::layers
