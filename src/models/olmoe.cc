// OLMoE: all of q and all of k are normed before the rotation, and every layer has a mixture of experts. The chosen ones keep the
// shares that the softmax of all gave them, unless the config says so.
#include "models/families.h"

namespace choral::models {

Result<std::unique_ptr<Model>> make_olmoe(const io::ConfigMap& config, const ModelOptions& options) {
  if (config.contains("clip_qkv")) {
    return unsupported("{} is {}: limits of queries, keys and values are not implemented", config.path_of("clip_qkv"),
                       config.find("clip_qkv")->to_json());
  }
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  if (!config.contains("rms_norm_eps")) spec.rms_norm_eps = 1e-5F;
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", false));
  spec.output_bias = spec.qkv_bias;
  spec.qk_norm = layers::QkNorm::kAllHeads;
  CHORAL_TRY(spec.moe, read_moe_spec(config, spec.layers));
  spec.moe->intermediate = spec.intermediate;
  CHORAL_TRY(spec.moe->gating.renormalise, config.get_bool_or("norm_topk_prob", false));
  spec.moe->layers.assign(spec.layers, true);
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
