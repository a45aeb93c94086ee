// Seed-OSS: Llama's equations; biases of q, k, v and of o_proj are told one from the other.
#include "models/families.h"

namespace choral::models {

Result<std::unique_ptr<Model>> make_seed_oss(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", true));
  CHORAL_TRY(spec.output_bias, config.get_bool_or("attention_out_bias", false));
  CHORAL_TRY(spec.mlp_bias, config.get_bool_or("mlp_bias", false));
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
