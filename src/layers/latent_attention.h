// Multi-head latent attention (DeepSeek-V2, -V3, Mistral 4): keys and values of all heads come from one latent of `kv_rank`
// elements a token, beside a key part that carries the position and is the same for all heads.
//   q = q_b_proj(norm(q_a_proj(x))), or q_proj(x);   [c | p] = kv_a_proj_with_mqa(x)
//   head i:  [k_i | v_i] = kv_b_proj(norm(c)),   k = [k_i | rope(p)],   q = [q_i | rope(q's last rope_dim)]
//   y = o_proj(attention(q, k, v))
// A rank of a divided model has the latents of all tokens, and attends with heads of its own.
// Always computed in the absorbed form (latent_projection.h): one key [norm(c) | rope(p)] for all heads is what the cache holds,
// and its first part is their value. A PluggableLayer, as SelfAttention.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/graph.h"
#include "layers/latent_projection.h"

namespace choral::layers {

class LatentAttention : public AttentionBlock, public PluggedBlock {
 public:
  static constexpr std::string_view kLayerName = "latent_attention";
  struct Spec {
    std::string prefix;
    int64_t hidden = 0;
    int64_t heads = 0;
    int64_t q_rank = 0;  // 0: q comes from x itself
    int64_t kv_rank = 0;
    int64_t nope_dim = 0;  // of a key's part from the latent
    int64_t rope_dim = 0;  // of the part with the position
    int64_t value_dim = 0;
    float scale = 1;                                         // of q·k
    bool bias = false;                                       // of the projections from and to `hidden`, but for q_proj
    std::optional<kernels::PositionScale> query_scale = {};  // of q besides, by its position
    const RotaryEmbedding* rotary = nullptr;                 // over rope_dim; of the model, which outlives the layers
  };
  LatentAttention(Builder& builder, const Spec& spec) : LatentAttention(builder, spec, own_heads(builder, spec)) {}

  void describe(Graph& graph, Value x, const Output& out) const override { graph.add(PluggedStep{this, x, out.y, out.add}); }
  void forward(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x, bool add,
               MatrixView<float> y) const override;

  KvShape kv_shape() const override { return attention_.kv_shape(); }
  void bind_kv_cache(const KvBinding& binding) override { attention_.bind_kv_cache(binding); }

 private:
  static HeadShare own_heads(const Builder& builder, const Spec& spec);
  static ColumnParallelLinear::Spec q_spec(const Spec& spec, const HeadShare& own);
  static LatentProjection::Spec kv_b_spec(const Spec& spec, const HeadShare& own);
  LatentAttention(Builder& builder, const Spec& spec, const HeadShare& own);
  int64_t latent_dim() const { return kv_rank_ + rope_dim_; }
  MatrixView<float> make_q(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x) const;
  // What each head of q is where it meets latents: [q_i·W_UK | rope(q's last rope_dim)]. The key's part is turned with them.
  MatrixView<float> make_queries(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<float> q,
                                 MatrixView<float> rotated_key) const;

  const RotaryEmbedding& rotary_;
  std::optional<kernels::PositionScale> query_scale_;
  int64_t heads_;        // the own ones,
  int64_t value_begin_;  // and where their columns begin in o_proj's x
  int64_t kv_rank_, nope_dim_, rope_dim_, value_dim_;
  std::vector<int64_t> begins_;                 // of each rank's columns there; empty: all are here
  std::unique_ptr<ReplicatedLinear> q_a_proj_;  // null: q_proj alone
  std::unique_ptr<RMSNorm> q_a_layernorm_;
  std::unique_ptr<ColumnParallelLinear> q_proj_;  // or q_b_proj
  std::unique_ptr<ReplicatedLinear> kv_a_proj_with_mqa_;
  std::unique_ptr<RMSNorm> kv_a_layernorm_;
  std::unique_ptr<LatentProjection> kv_b_proj_;
  Attention attention_;
  std::unique_ptr<RowParallelLinear> o_proj_;
};

}  // namespace choral::layers
