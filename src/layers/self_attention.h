// The attention block of a decoder layer: o_proj(attention(rope(norm(q)), rope(norm(k)), v)) with q, k, v = qkv_proj(x).
// A PluggableLayer: a class that stands in for it derives from it, writes steps of its own into the graph, or one PluggedStep.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "layers/graph.h"

namespace choral::layers {

// RMSNorm of q and of k: none; before the rotation of each head by itself, of all heads as one row, or of each head without its
// mean and by a weight of its own; of each head after it, with a weight or without.
enum class QkNorm { kNone, kEachHead, kAllHeads, kEachCentredHead, kEachTurnedHead, kUnweightedTurnedHead };

class SelfAttention : public AttentionBlock {
 public:
  static constexpr std::string_view kLayerName = "self_attention";
  struct Spec {
    std::string prefix;
    int64_t hidden = 0;
    int64_t heads = 0;
    int64_t kv_heads = 0;
    int64_t head_dim = 0;
    int64_t sliding_window = 0;       // 0 = full attention
    std::optional<float> scale = {};  // of q·k; none: 1/sqrt(head_dim)
    float softcap = 0;                // of q·k, see AttentionParams
    bool merged_qkv = false;          // the checkpoint has one matrix, qkv_proj
    bool qkv_bias = false;
    bool output_bias = false;
    bool output_gate = false;  // q_proj gives each head's query and then its gate: o_proj(sigmoid(gate)·attention(…))
    bool sees_later = false;   // each token sees those after it too, see AttentionParams
    bool sinks = false;        // the checkpoint has a score for each head that joins its softmax
    QkNorm qk_norm = QkNorm::kNone;
    std::string_view q_norm_name = "q_norm", k_norm_name = "k_norm";
    float rms_norm_eps = 1e-6F;
    NormWeight norm_weight = NormWeight::kPlain;
    std::optional<kernels::PositionScale> query_scale = {};  // of q after the rotation
    const RotaryEmbedding* rotary = nullptr;                 // of the model, which outlives the layers; null: q and k do not turn
  };
  SelfAttention(Builder& builder, const Spec& spec) : SelfAttention(builder, spec, own_heads(builder, spec)) {}

  void describe(Graph& graph, Value x, const Output& out) const override;

  KvShape kv_shape() const override { return attention_.kv_shape(); }
  void bind_kv_cache(const KvBinding& binding) override { attention_.bind_kv_cache(binding); }

 private:
  static HeadShare own_heads(const Builder& builder, const Spec& spec);
  static QKVParallelLinear::Spec qkv_spec(const Spec& spec, const HeadShare& own);
  static std::vector<Share> own_outputs(const HeadShare& own, const Spec& spec);
  SelfAttention(Builder& builder, const Spec& spec, const HeadShare& own);
  void describe_head_norms(Graph& graph, Value q, Value k) const;

  const RotaryEmbedding* rotary_;
  int64_t q_begin_, q_size_, kv_size_;  // of the own heads
  int64_t head_dim_;
  std::vector<int64_t> begins_;                 // of each rank's columns of what is attended; empty: all are here
  std::optional<ColumnOrder> queries_, gates_;  // among the columns of qkv_proj; none: no gate
  std::unique_ptr<QKVParallelLinear> qkv_proj_;
  std::unique_ptr<AttentionSinks> sinks_;  // null: none
  Attention attention_;
  std::unique_ptr<RowParallelLinear> o_proj_;
  QkNorm qk_norm_;
  std::optional<kernels::PositionScale> query_scale_;
  std::unique_ptr<RMSNorm> q_norm_, k_norm_;  // null without one
};

}  // namespace choral::layers
