// The decoder of this house's families: h += attention(norm(h)); h += mlp(norm(h)), layer by layer, with what a DecoderSpec
// varies of it. A family describes itself with one; a family with other equations writes its own Model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/config_map.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/rotary/rotary.h"
#include "layers/embedding_layers.h"
#include "layers/fused_moe.h"
#include "layers/gated_delta_net.h"
#include "layers/mamba2.h"
#include "layers/self_attention.h"
#include "models/model.h"
#include "models/registry.h"

namespace choral::models {

// A mixture of experts, where layers have it in the place of the MLP.
struct MoeSpec {
  std::string block = "mlp";  // what it is called in a layer
  layers::FusedMoE::ExpertNames names = {};
  int64_t experts = 0;
  int64_t intermediate = 0;                           // of one expert
  int64_t shared_intermediate = 0;                    // of the experts that every token meets, as one; 0: none
  std::string shared_block = {};                      // what these are called in a layer; empty: names.shared, in the block
  bool shared_linears = false;                        // see GatedMlp's linears
  bool shared_gate = false;                           // these count by a sigmoid of their own, "shared_expert_gate"
  kernels::MoeGating gating = {};                     // without its selection bias,
  bool selection_bias = false;                        // which the checkpoint has
  bool bias = false;                                  // of the router and of the experts' matrices
  bool weigh_input = false;                           // see FusedMoE
  bool merged_gate_up = false;                        // see FusedMoE
  std::optional<kernels::ClampedSwiglu> swiglu = {};  // see FusedMoE
  std::vector<bool> layers = {};                      // which of the model's have it
};

// Latent attention, where a family has it in the place of the usual one (layers/latent_attention.h).
struct LatentSpec {
  int64_t q_rank = 0;  // 0: q comes from x itself
  int64_t kv_rank = 0;
  int64_t nope_dim = 0, rope_dim = 0, value_dim = 0;
  bool bias = false;
};

// What a layer's four norms are called. Of two before the blocks the second is called as the second of four.
struct NormNames {
  std::string_view attention = "input_layernorm", after_attention = "post_attention_layernorm";
  std::string_view mlp = "pre_feedforward_layernorm", after_mlp = "post_feedforward_layernorm";
};

// Layers that keep a state and no keys, where a family has them among those with attention (layers/gated_delta_net.h).
struct DeltaNetSpec {
  layers::GatedDeltaNet::Spec layer = {};  // but for what it is called, and the decoder's sizes
  std::vector<bool> layers = {};           // which of the model's they are
};

// The same of Mamba-2 layers.
struct Mamba2Spec {
  layers::Mamba2::Spec layer = {};
  std::vector<bool> layers = {};
};

struct DecoderSpec {
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab = 0;
  int64_t max_positions = 0;
  float rms_norm_eps = 1e-6f;
  std::string hidden_act = "silu";
  bool qkv_bias = false;
  bool output_bias = false;     // of o_proj
  bool attention_gate = false;  // q_proj gives each head's query and gate, see SelfAttention
  bool attention_sinks = false;
  bool sees_later = false;  // each token sees those after it too, in its window: of models that give no text
  bool mlp_bias = false;
  bool merged_projections = false;  // the checkpoint has qkv_proj and gate_up_proj, not their parts
  bool merged_gate_up = false;      // it has gate_up_proj
  bool mlp_linears = false;         // see GatedMlp's linears
  layers::QkNorm qk_norm = layers::QkNorm::kNone;
  layers::NormWeight norm_weight = layers::NormWeight::kPlain;  // how every norm's weight is stored
  bool post_norms = false;                    // h += norm(block(norm(h))): what a block gives is normed too, before it is added
  std::optional<float> attention_scale = {};  // of q·k; none: 1/sqrt(head_dim)
  float attention_softcap = 0;                // > 0: of q·k, see AttentionParams
  float logit_softcap = 0;                    // > 0: of the logits
  float embedding_scale = 1;                  // what embeddings are multiplied by

  NormNames norm_names = {};
  std::string_view q_norm_name = "q_norm", k_norm_name = "k_norm";
  bool pre_norms = true;                                   // false: h += norm(block(h)), with post_norms
  bool centred_norms = false;                              // norms subtract the row's mean first: LayerNorm without a bias,
  bool norm_biases = false;                                // or with one
  bool head_bias = false;                                  // of lm_head
  bool parallel_blocks = false;                            // h += attention(x) + mlp(x) with x = norm(h), and no other norm
  float residual_multiplier = 1;                           // of what a block gives, before it is added
  float logit_scale = 1;                                   // what logits are multiplied by
  std::optional<kernels::PositionScale> query_scale = {};  // of q besides, by its position
  std::vector<bool> rotates = {};                          // per layer, whether q and k turn with the position; empty: in each

  std::optional<MoeSpec> moe = {};
  std::optional<LatentSpec> latent = {};
  std::optional<DeltaNetSpec> delta_net = {};
  std::optional<Mamba2Spec> mamba2 = {};
  bool tie_word_embeddings = false;
  std::string mlp_block = "mlp";                                     // what the MLP is called in a layer
  std::vector<layers::EmbeddingLayers::Spec> embedding_layers = {};  // behind the pooling of hidden states
  std::vector<int64_t> sliding_window;                               // per layer, 0 = full attention
  kernels::RotaryParams rotary;
  std::optional<kernels::RotaryParams> window_rotary = {};  // of layers with a window, where theirs is another
};

// The fields every such family shares, read and checked: sizes positive, heads divisible, dimensions within limits.
Result<DecoderSpec> read_decoder_spec(const io::ConfigMap& config, const ModelOptions& options);

Result<std::unique_ptr<Model>> make_decoder(DecoderSpec spec, const ModelOptions& options);

}  // namespace choral::models
