// Attention that norms each head of q, k and v, and whose keys and values may be those of another layer, or one and the same
// (Gemma 4): o_proj(attention(rope(norm(q)), rope(norm(k)), unit(v))) where unit is a norm without a weight, and v = k where
// the checkpoint has no v_proj. A layer that shares has no k and v: it looks at the cache of the layer that its KV binding is of.
// A PluggableLayer, as SelfAttention.
#pragma once

#include <memory>
#include <string>

#include "layers/graph.h"

namespace choral::layers {

class SharingAttention : public AttentionBlock {
 public:
  static constexpr std::string_view kLayerName = "sharing_attention";
  enum class KeysAndValues { kBoth, kKeysAreValues, kAnotherLayers };
  struct Spec {
    std::string prefix;
    int64_t hidden = 0;
    int64_t heads = 0;
    int64_t kv_heads = 0;
    int64_t head_dim = 0;
    int64_t sliding_window = 0;  // 0 = full attention
    float scale = 1;             // of q·k
    KeysAndValues keys_and_values = KeysAndValues::kBoth;
    bool bias = false;  // of all projections
    float rms_norm_eps = 1e-6F;
    const RotaryEmbedding* rotary = nullptr;  // of the model, which outlives the layers
  };
  SharingAttention(Builder& builder, const Spec& spec);

  void describe(Graph& graph, Value x, const Output& out) const override;

  KvShape kv_shape() const override { return attention_.kv_shape(); }
  void bind_kv_cache(const KvBinding& binding) override { attention_.bind_kv_cache(binding); }

 private:
  const RotaryEmbedding& rotary_;
  KeysAndValues keys_and_values_;
  int64_t head_dim_, q_size_, kv_size_;
  std::unique_ptr<LinearBase> projection_;  // of q and of what it has of k and v
  Attention attention_;
  std::unique_ptr<RowParallelLinear> o_proj_;
  std::unique_ptr<RMSNorm> q_norm_, k_norm_, v_norm_;  // the last two are null where keys are another layer's
};

}  // namespace choral::layers
