#include "layers/self_attention.h"

#include <cmath>

namespace choral::layers {

std::vector<Share> SelfAttention::own_outputs(const HeadShare& own, const Spec& spec) {
  if (own.begins.empty()) return {};
  const int64_t q_width = spec.output_gate ? 2 * spec.head_dim : spec.head_dim, kv_width = spec.head_dim;
  const int64_t keys = spec.heads * q_width, values = keys + spec.kv_heads * kv_width;
  return {own.heads.times(q_width), own.groups.times(kv_width).from(keys), own.groups.times(kv_width).from(values)};
}

// A head of keys goes with the queries that look at it. Where q and k are normed as one row of all heads, every rank has all.
HeadShare SelfAttention::own_heads(const Builder& builder, const Spec& spec) {
  const bool normed_as_one = spec.qk_norm == QkNorm::kAllHeads || spec.qk_norm == QkNorm::kEachCentredHead;  // by one weight
  return share_heads(normed_as_one ? Ranks{} : builder.ranks, spec.heads, spec.kv_heads,
                     [&](const HeadShare& own) { return QKVParallelLinear::may_own(builder, qkv_spec(spec, own)); });
}

QKVParallelLinear::Spec SelfAttention::qkv_spec(const Spec& spec, const HeadShare& own) {
  return {.prefix = spec.prefix + ".qkv_proj",
          .in = spec.hidden,
          .head_dim = spec.head_dim,
          .heads = spec.output_gate ? 2 * spec.heads : spec.heads,
          .kv_heads = spec.kv_heads,
          .bias = spec.qkv_bias,
          .merged = spec.merged_qkv,
          .own = own_outputs(own, spec)};
}

SelfAttention::SelfAttention(Builder& builder, const Spec& spec, const HeadShare& own)
    : rotary_(spec.rotary),
      q_begin_(own.heads.begin * spec.head_dim),
      q_size_(own.heads.count * spec.head_dim),
      kv_size_(own.groups.count * spec.head_dim),
      head_dim_(spec.head_dim),
      begins_(column_begins(own, spec.head_dim)),
      qkv_proj_(builder.make<QKVParallelLinear>(qkv_spec(spec, own))),
      sinks_(spec.sinks ? builder.make<AttentionSinks>({.prefix = spec.prefix + ".sinks", .heads = spec.heads, .own = own.heads})
                        : nullptr),
      attention_({.heads = own.heads.count,
                  .kv_heads = own.groups.count,
                  .head_dim = spec.head_dim,
                  .scale = spec.scale.value_or(1.0F / std::sqrt(static_cast<float>(spec.head_dim))),
                  .softcap = spec.softcap,
                  .sliding_window = spec.sliding_window,
                  .sees_later = spec.sees_later},
                 /*value_dim=*/spec.head_dim, sinks_.get()),
      o_proj_(builder.make<RowParallelLinear>(
          {.prefix = spec.prefix + ".o_proj", .in = spec.heads * spec.head_dim, .out = spec.hidden, .bias = spec.output_bias})),
      qk_norm_(spec.qk_norm),
      query_scale_(spec.query_scale) {
  if (spec.output_gate) {
    queries_.emplace(spec.head_dim, qkv_proj_->out_features());
    gates_ = queries_;
    for (int64_t head = 0; head < own.heads.count; ++head) {
      queries_->add(2 * head * spec.head_dim, spec.head_dim);
      gates_->add((2 * head + 1) * spec.head_dim, spec.head_dim);
    }
  }
  if (qk_norm_ == QkNorm::kNone) return;
  const auto norm = [&](std::string_view name, int64_t all_heads) {
    const bool own_weights = qk_norm_ == QkNorm::kEachCentredHead;
    return make_rms_norm(builder, spec.norm_weight,
                         {.prefix = fmt::format("{}.{}", spec.prefix, name),
                          .size = own_weights || qk_norm_ == QkNorm::kAllHeads ? all_heads : spec.head_dim,
                          .eps = spec.rms_norm_eps,
                          .weighted = qk_norm_ != QkNorm::kUnweightedTurnedHead,
                          .heads = own_weights ? all_heads / spec.head_dim : 1});
  };
  q_norm_ = norm(spec.q_norm_name, q_size_);
  k_norm_ = norm(spec.k_norm_name, kv_size_);
}

void SelfAttention::describe_head_norms(Graph& graph, Value q, Value k) const {
  graph.add(HeadsNormStep{q_norm_.get(), q});
  graph.add(HeadsNormStep{k_norm_.get(), k});
}

void SelfAttention::describe(Graph& graph, Value x, const Output& out) const {
  const int64_t k_begin = qkv_proj_->out_features() - 2 * kv_size_;
  const Value qkv = graph.matrix(k_begin + 2 * kv_size_), whole = graph.matrix(o_proj_->in_features());
  const Value attended = whole.columns(q_begin_, q_size_);
  const Value q = queries_ ? graph.matrix(q_size_) : qkv.columns(0, q_size_);
  const Value k = qkv.columns(k_begin, kv_size_), v = qkv.columns(k_begin + kv_size_, kv_size_);
  graph.add(LinearStep{qkv_proj_.get(), x, qkv, false});
  if (queries_) graph.add(ReorderStep{&*queries_, qkv, q});
  if (qk_norm_ == QkNorm::kEachHead) {
    describe_head_norms(graph, q, k);
  } else if (qk_norm_ == QkNorm::kAllHeads) {
    graph.add(NormStep{q_norm_.get(), q, q});
    graph.add(NormStep{k_norm_.get(), k, k});
  } else if (qk_norm_ == QkNorm::kEachCentredHead) {
    for (const auto& [norm, rows] : {std::pair(q_norm_.get(), q), std::pair(k_norm_.get(), k)}) {
      const int64_t heads = rows.cols / head_dim_;
      graph.add(SubtractMeanStep{rows, rows, heads});
      graph.add(PartsNormStep{norm, rows, heads});
    }
  }
  if (rotary_ != nullptr) graph.add(RotaryStep{rotary_, q, k});
  if (qk_norm_ == QkNorm::kEachTurnedHead || qk_norm_ == QkNorm::kUnweightedTurnedHead) describe_head_norms(graph, q, k);
  if (query_scale_) graph.add(ScaleByPositionStep{*query_scale_, q});
  graph.add(WriteKvStep{&attention_, k, v});
  graph.add(AttendStep{&attention_, q, attended});
  if (gates_) {
    const Value gate = graph.matrix(q_size_);
    graph.add(ReorderStep{&*gates_, qkv, gate});
    graph.add(GateStep{kernels::Activation::kSigmoid, gate, attended});
  }
  if (!begins_.empty()) graph.add(GatherStep{whole, &begins_});
  graph.add(LinearStep{o_proj_.get(), whole, out.y, out.add});
}

}  // namespace choral::layers
