// Phi-3.5-MoE and the smaller PhiMoE models: Mixtral's equations with biases of attention and of the head, norms that subtract a
// mean and have a bias, and a sparse mixer that weighs two experts.
#include "models/families.h"

namespace choral::models {
namespace {

// The factor of cos and sin stands in the file, one for each list of longrope's. GGUF has one for both.
Status read_mscale(const io::ConfigMap& config, kernels::RotaryParams& rotary) {
  constexpr io::DoubleRange kFactor{0, 1e6};
  if (rotary.scaling != kernels::RotaryScaling::kLongRope || rotary.attention_factor) return {};
  CHORAL_TRY(const auto scaling, config.get_map("rope_scaling"));
  CHORAL_TRY(rotary.attention_factor, scaling.get_double("short_mscale", kFactor));
  CHORAL_TRY(rotary.long_attention_factor, scaling.get_double("long_mscale", kFactor));
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> make_phimoe(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_RETURN_IF_ERROR(read_mscale(config, spec.rotary));
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", false));
  CHORAL_TRY(spec.head_bias, config.get_bool_or("lm_head_bias", false));
  if (spec.head_bias && spec.tie_word_embeddings) {
    return unsupported("{} is true, and the head is the embeddings' table, which has none", config.path_of("lm_head_bias"));
  }
  spec.output_bias = spec.qkv_bias;
  spec.centred_norms = spec.norm_biases = true;
  CHORAL_TRY(const int64_t window, config.get_int_or("sliding_window", 0, io::kNotNegative));
  spec.sliding_window.assign(spec.layers, window);
  CHORAL_TRY(spec.moe, read_moe_spec(config, spec.layers));
  if (spec.moe->gating.top_k != 2) {
    return unsupported("{} is {}; a sparse mixer has 2", config.path_of("num_experts_per_tok"), spec.moe->gating.top_k);
  }
  CHORAL_TRY(const double jitter, config.get_double_or("router_jitter_noise", 0.01, {0, 1}));
  spec.moe->block = "block_sparse_moe";
  spec.moe->names = {.gate = "w1", .up = "w3", .down = "w2", .router_in_5 = "router"};
  spec.moe->intermediate = spec.intermediate;
  spec.moe->gating.scoring = kernels::GateScoring::kSparseMixer;
  spec.moe->gating.jitter = static_cast<float>(jitter);
  spec.moe->layers.assign(spec.layers, true);
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
