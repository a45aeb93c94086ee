// Mixtral: Mistral's equations with a mixture of experts in every layer, whose two best share a token by their softmax.
#include "models/families.h"

namespace choral::models {

Result<std::unique_ptr<Model>> make_mixtral(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  if (!config.contains("rope_theta")) spec.rotary.theta = 1e6;
  if (!config.contains("rms_norm_eps")) spec.rms_norm_eps = 1e-5F;
  CHORAL_TRY(const int64_t window, config.get_int_or("sliding_window", 0, io::kNotNegative));
  spec.sliding_window.assign(spec.layers, window);
  CHORAL_TRY(spec.moe, read_moe_spec(config, spec.layers));
  spec.moe->block = "block_sparse_moe";
  spec.moe->names = {.gate = "w1", .up = "w3", .down = "w2"};
  spec.moe->intermediate = spec.intermediate;
  spec.moe->gating.renormalise = true;
  spec.moe->layers.assign(spec.layers, true);
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
