// GLM-4: a part of each head turns, in pairs of neighbours; gate and up are one matrix. Those of April 2025 (Glm4) also norm what
// a block gives.
#include "models/families.h"

namespace choral::models {
namespace {

Result<DecoderSpec> read_glm_spec(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", true));
  spec.merged_gate_up = true;
  spec.rotary.interleaved = true;
  return spec;
}

}  // namespace

Result<std::unique_ptr<Model>> make_glm(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_glm_spec(config, options));
  return make_decoder(std::move(spec), options);
}

Result<std::unique_ptr<Model>> make_glm4(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_glm_spec(config, options));
  spec.post_norms = true;
  spec.norm_names = {.attention = "input_layernorm",
                     .after_attention = "post_self_attn_layernorm",
                     .mlp = "post_attention_layernorm",
                     .after_mlp = "post_mlp_layernorm"};
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
