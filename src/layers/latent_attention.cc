#include "layers/latent_attention.h"

#include <numeric>

#include "platform/gather.h"
#include "platform/host_view.h"

namespace choral::layers {
namespace {

constexpr float kEps = 1e-6F;  // of the latents' norms, whatever rms_norm_eps is

// Rows of one head each, of a matrix without gaps. [tokens·heads, cols / heads]
MatrixView<float> by_head(MatrixView<float> m, int64_t heads) { return {m.data, m.rows * heads, m.cols / heads}; }

}  // namespace

HeadShare LatentAttention::own_heads(const Builder& builder, const Spec& spec) {
  return share_heads(builder.ranks, spec.heads, spec.heads, [&](const HeadShare& own) {
    return ColumnParallelLinear::may_own(builder, q_spec(spec, own)) && LatentProjection::may_own(builder, kv_b_spec(spec, own));
  });
}

ColumnParallelLinear::Spec LatentAttention::q_spec(const Spec& spec, const HeadShare& own) {
  const int64_t head_dim = spec.nope_dim + spec.rope_dim;
  ColumnParallelLinear::Spec q{.prefix = fmt::format("{}.{}", spec.prefix, spec.q_rank > 0 ? "q_b_proj" : "q_proj"),
                               .in = spec.q_rank > 0 ? spec.q_rank : spec.hidden,
                               .out = spec.heads * head_dim};
  if (!own.begins.empty()) q.own = {own.heads.times(head_dim)};
  return q;
}

LatentProjection::Spec LatentAttention::kv_b_spec(const Spec& spec, const HeadShare& own) {
  LatentProjection::Spec kv_b{.prefix = spec.prefix + ".kv_b_proj",
                              .heads = spec.heads,
                              .rank = spec.kv_rank,
                              .key_dim = spec.nope_dim,
                              .value_dim = spec.value_dim};
  if (!own.begins.empty()) kv_b.own = own.heads;
  return kv_b;
}

LatentAttention::LatentAttention(Builder& builder, const Spec& spec, const HeadShare& own)
    : rotary_(*spec.rotary),
      query_scale_(spec.query_scale),
      heads_(own.heads.count),
      value_begin_(own.heads.begin * spec.value_dim),
      kv_rank_(spec.kv_rank),
      nope_dim_(spec.nope_dim),
      rope_dim_(spec.rope_dim),
      value_dim_(spec.value_dim),
      begins_(column_begins(own, spec.value_dim)),
      attention_(Attention::over_latents({.heads = heads_, .kv_heads = 1, .head_dim = latent_dim(), .scale = spec.scale},
                                         spec.kv_rank)) {
  const auto name = [&](std::string_view part) { return fmt::format("{}.{}", spec.prefix, part); };
  if (spec.q_rank > 0) {
    q_a_proj_ =
        builder.make<ReplicatedLinear>({.prefix = name("q_a_proj"), .in = spec.hidden, .out = spec.q_rank, .bias = spec.bias});
    q_a_layernorm_ = builder.make<RMSNorm>({.prefix = name("q_a_layernorm"), .size = spec.q_rank, .eps = kEps});
  }
  q_proj_ = builder.make<ColumnParallelLinear>(q_spec(spec, own));
  kv_a_proj_with_mqa_ = builder.make<ReplicatedLinear>(
      {.prefix = name("kv_a_proj_with_mqa"), .in = spec.hidden, .out = latent_dim(), .bias = spec.bias});
  kv_a_layernorm_ = builder.make<RMSNorm>({.prefix = name("kv_a_layernorm"), .size = kv_rank_, .eps = kEps});
  kv_b_proj_ = builder.make<LatentProjection>(kv_b_spec(spec, own));
  o_proj_ = builder.make<RowParallelLinear>(
      {.prefix = name("o_proj"), .in = spec.heads * value_dim_, .out = spec.hidden, .bias = spec.bias});
}

MatrixView<float> LatentAttention::make_q(const platform::Context& ctx, const ForwardBatch& batch,
                                          MatrixView<const float> x) const {
  const auto q = ctx.make_matrix(x.rows, q_proj_->out_features());
  if (!q_a_proj_) {
    q_proj_->forward(ctx, x, q, batch.lora);
    return q;
  }
  const auto latent = ctx.make_matrix(x.rows, q_a_proj_->out_features());
  q_a_proj_->forward(ctx, x, latent, batch.lora);
  q_a_layernorm_->forward(ctx, latent, latent, batch.lora);
  q_proj_->forward(ctx, latent, q, batch.lora);
  return q;
}

MatrixView<float> LatentAttention::make_queries(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<float> q,
                                                MatrixView<float> rotated_key) const {
  const int64_t rows = q.rows;
  const auto each = ctx.kernel.scratch.make<int32_t>(rows * heads_);
  std::iota(each.begin(), each.end(), 0);
  const auto every_head = platform::place_indices<int32_t>(ctx, each);
  const auto rotated = ctx.make_matrix(rows, heads_ * rope_dim_), queries = ctx.make_matrix(rows, heads_ * latent_dim());
  ctx.ops.take_rows(ctx, by_head(q, heads_).sub_cols(nope_dim_, rope_dim_), every_head, by_head(rotated, heads_));
  rotary_.forward(ctx, batch.positions, rotated, rotated_key);
  ctx.ops.take_rows(ctx, by_head(rotated, heads_), every_head, by_head(queries, heads_).sub_cols(kv_rank_, rope_dim_));
  kv_b_proj_->absorb_queries(ctx, q, queries, batch.lora);
  return queries;
}

void LatentAttention::forward(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x, bool add,
                              MatrixView<float> y) const {
  const platform::StepMark mark(ctx);
  const auto q = make_q(ctx, batch, x);
  if (query_scale_) ctx.ops.scale_by_position(ctx, *query_scale_, batch.positions, q);
  const auto key = ctx.make_matrix(x.rows, latent_dim());
  kv_a_proj_with_mqa_->forward(ctx, x, key, batch.lora);
  const auto latent = key.sub_cols(0, kv_rank_);
  kv_a_layernorm_->forward(ctx, latent, latent, batch.lora);
  const auto queries = make_queries(ctx, batch, q, key.sub_cols(kv_rank_, rope_dim_));
  attention_.write(ctx, batch, key, {});
  const auto seen = ctx.make_matrix(x.rows, heads_ * kv_rank_), values = ctx.make_matrix(x.rows, o_proj_->in_features());
  attention_.attend(ctx, batch, queries, seen);
  kv_b_proj_->make_values(ctx, seen, values.sub_cols(value_begin_, heads_ * value_dim_), batch.lora);
  if (!begins_.empty()) platform::gather_columns(ctx, values, begins_);
  if (add) return o_proj_->forward_add(ctx, values, y, batch.lora);
  o_proj_->forward(ctx, values, y, batch.lora);
}

}  // namespace choral::layers
