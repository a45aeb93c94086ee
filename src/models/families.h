// The families' makers, for the registry's table, and what two or more of them share in reading their configs.
#pragma once

#include "models/decoder.h"

namespace choral::models {

Result<std::unique_ptr<Model>> make_llama(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_llama4(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_mistral(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_qwen2(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_qwen3(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_qwen3_5(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_qwen3_5_moe(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_qwen3_next(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_phi3(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_phimoe(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_qwen2_moe(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_qwen3_moe(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_mixtral(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_olmoe(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_gpt_oss(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_deepseek_v2(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_deepseek_v3(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_deepseek_v32(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_glm4_moe(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_glm4_moe_lite(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_granite_moe(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_granite_moe_shared(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_granite_moe_hybrid(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_minimax_m2(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_ernie4_5_moe(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_solar_open(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_gemma2(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_gemma3(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_smollm3(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_olmo2(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_olmo3(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_granite(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_ministral3(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_mistral4(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_glm(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_glm4(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_seed_oss(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_ernie4_5(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_exaone4(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_hunyuan(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_hunyuan_moe(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_cohere(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_cohere2(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_gemma4(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_gemma4_unified(const io::ConfigMap& config, const ModelOptions& options);

// Beyond any model there is; keeps products of two dimensions far from overflow.
inline constexpr io::IntRange kDimension{1, int64_t{1} << 24};

// Granite's decoder but for its MLP: four multipliers, biases of attention.
Result<DecoderSpec> read_granite_spec(const io::ConfigMap& config, const ModelOptions& options);
// The experts of its mixtures, in every layer, without any that is shared.
Result<MoeSpec> read_granite_mixture(const io::ConfigMap& config, const DecoderSpec& spec);
// `shared_mlp` beside them, of so many columns; 0: none.
void add_granite_shared_mlp(int64_t intermediate, MoeSpec& moe);

// Which layers keep a state and no keys: those that `layer_types` calls linear_attention. The others have full_attention, and one
// does at least.
Result<std::vector<bool>> read_state_layers(const io::ConfigMap& config, int64_t layers);

// Qwen3's attention and norms, which its mixtures share.
Result<DecoderSpec> read_qwen3_spec(const io::ConfigMap& config, const ModelOptions& options);

// `layer_types` where the file has it, else a window in all layers but every `pattern`-th. Of `sliding_window` tokens; where the
// file has no such field, of `absent`.
Result<std::vector<int64_t>> read_alternating_windows(const io::ConfigMap& config, int64_t layers, int64_t pattern,
                                                      int64_t absent);

// The rotation of layers with a window where they do not share `other`'s base and scaling: rope_local_base_freq, unscaled.
Result<kernels::RotaryParams> read_window_rotary(const io::ConfigMap& config, const kernels::RotaryParams& other);

// `window` in the layers that `layer_types` calls sliding_attention, 0 in the others.
Result<std::vector<int64_t>> read_layer_windows(const io::ConfigMap& config, int64_t layers, int64_t window);

// `final_logit_softcapping` and the like. null: none, 0. Absent: what the family's configuration class takes.
Result<float> read_softcap(const io::ConfigMap& config, std::string_view key, double absent);

// How many experts a layer has and how many of them a token gets: num_experts, num_experts_per_tok. Bounded for all `layers`.
Result<MoeSpec> read_moe_spec(const io::ConfigMap& config, int64_t layers);

// Every decoder_sparse_step-th layer, but for mlp_only_layers.
Result<std::vector<bool>> read_sparse_layers(const io::ConfigMap& config, int64_t layers);

// A mixture beside shared experts after the first layers: read_moe_spec() with moe_intermediate_size, n_shared_experts and
// first_k_dense_replace, which are these where the file has none.
struct SharedMoeDefaults {
  int64_t shared = 0;
  int64_t dense = 0;
};
Result<MoeSpec> read_shared_moe_spec(const io::ConfigMap& config, int64_t layers, const SharedMoeDefaults& absent);

// Experts are chosen within the groups whose two best have the highest scores. DeepSeek-V3, and those that took its routing over,
// score them by a sigmoid, with a bias.
struct GroupGatingDefaults {
  double routed_scaling = 1;
  std::optional<int64_t> groups = {};  // none: the file has to say
};
Status read_group_gating(const io::ConfigMap& config, const GroupGatingDefaults& absent, MoeSpec& moe);
Status read_sigmoid_gating(const io::ConfigMap& config, const GroupGatingDefaults& absent, MoeSpec& moe);

// DeepSeek's decoder but for its routing: latent attention, a mixture after the first layers.
Result<DecoderSpec> read_latent_decoder_spec(const io::ConfigMap& config, const ModelOptions& options,
                                             const SharedMoeDefaults& absent = {});

// Qwen's `sliding_window`; 0 unless use_sliding_window.
Result<int64_t> read_qwen_window(const io::ConfigMap& config);
// Qwen's window of each layer: `layer_types` where the file has it, else `sliding_window` from layer max_window_layers on;
// none at all unless use_sliding_window.
Result<std::vector<int64_t>> read_qwen_windows(const io::ConfigMap& config, int64_t layers);

}  // namespace choral::models
