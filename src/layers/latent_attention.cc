#include "layers/latent_attention.h"

#include <algorithm>

namespace choral::layers {
namespace {

constexpr float kEps = 1e-6F;  // of the latents' norms, whatever rms_norm_eps is

// Rows of one head each, of a matrix without gaps. [tokens·heads, cols / heads]
MatrixView<float> by_head(MatrixView<float> m, int64_t heads) { return {m.data, m.rows * heads, m.cols / heads}; }

}  // namespace

LatentAttention::LatentAttention(Builder& builder, const Spec& spec)
    : rotary_(*spec.rotary),
      heads_(spec.heads),
      kv_rank_(spec.kv_rank),
      nope_dim_(spec.nope_dim),
      rope_dim_(spec.rope_dim),
      value_dim_(spec.value_dim),
      attention_({.heads = heads_, .kv_heads = heads_, .head_dim = key_dim(), .scale = spec.scale}, value_dim_) {
  const auto name = [&](std::string_view part) { return fmt::format("{}.{}", spec.prefix, part); };
  const int64_t q_size = heads_ * key_dim();
  if (spec.q_rank > 0) {
    q_a_proj_ =
        builder.make<ReplicatedLinear>({.prefix = name("q_a_proj"), .in = spec.hidden, .out = spec.q_rank, .bias = spec.bias});
    q_a_layernorm_ = builder.make<RMSNorm>({.prefix = name("q_a_layernorm"), .size = spec.q_rank, .eps = kEps});
    q_proj_ = builder.make<ColumnParallelLinear>({.prefix = name("q_b_proj"), .in = spec.q_rank, .out = q_size});
  } else {
    q_proj_ = builder.make<ColumnParallelLinear>({.prefix = name("q_proj"), .in = spec.hidden, .out = q_size});
  }
  kv_a_proj_with_mqa_ = builder.make<ReplicatedLinear>(
      {.prefix = name("kv_a_proj_with_mqa"), .in = spec.hidden, .out = kv_rank_ + rope_dim_, .bias = spec.bias});
  kv_a_layernorm_ = builder.make<RMSNorm>({.prefix = name("kv_a_layernorm"), .size = kv_rank_, .eps = kEps});
  kv_b_proj_ =
      builder.make<ColumnParallelLinear>({.prefix = name("kv_b_proj"), .in = kv_rank_, .out = heads_ * (nope_dim_ + value_dim_)});
  o_proj_ = builder.make<RowParallelLinear>(
      {.prefix = name("o_proj"), .in = heads_ * value_dim_, .out = spec.hidden, .bias = spec.bias});
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

void LatentAttention::rotate(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<float> q,
                             MatrixView<float> k) const {
  const auto positions = ctx.kernel.scratch.make<int32_t>(q.rows * heads_);
  for (int64_t t = 0; t < q.rows; ++t) std::fill_n(positions.data() + t * heads_, heads_, batch.positions.host[t]);
  rotary_.forward(ctx, platform::place_indices<int32_t>(ctx, positions), by_head(q, heads_).sub_cols(nope_dim_, rope_dim_),
                  by_head(k, heads_).sub_cols(nope_dim_, rope_dim_));
}

void LatentAttention::forward(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x, bool add,
                              MatrixView<float> y) const {
  const platform::StepMark mark(ctx);
  const auto q = make_q(ctx, batch, x);
  const auto kv_a = ctx.make_matrix(x.rows, kv_rank_ + rope_dim_);
  kv_a_proj_with_mqa_->forward(ctx, x, kv_a, batch.lora);
  const auto latent = ctx.make_matrix(x.rows, kv_rank_);
  kv_a_layernorm_->forward(ctx, kv_a.sub_cols(0, kv_rank_), latent, batch.lora);
  const auto kv = ctx.make_matrix(x.rows, kv_b_proj_->out_features());
  kv_b_proj_->forward(ctx, latent, kv, batch.lora);

  const auto k = ctx.make_matrix(x.rows, heads_ * key_dim()), v = ctx.make_matrix(x.rows, heads_ * value_dim_);
  ctx.ops.split_latent_kv(ctx, kv, kv_a.sub_cols(kv_rank_, rope_dim_), heads_, k, v);
  rotate(ctx, batch, q, k);
  attention_.write(ctx, batch, k, v);
  attention_.attend(ctx, batch, q, v);  // the rows' values are in the cache by now
  if (add) return o_proj_->forward_add(ctx, v, y, batch.lora);
  o_proj_->forward(ctx, v, y, batch.lora);
}

}  // namespace choral::layers
