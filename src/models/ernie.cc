// ERNIE 4.5, dense: Llama's equations; q and k turn in pairs of neighbours; one field says whether all projections have a bias.
#include "models/families.h"

namespace choral::models {

Result<std::unique_ptr<Model>> make_ernie4_5(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_TRY(const bool bias, config.get_bool_or("use_bias", false));
  spec.qkv_bias = spec.output_bias = spec.mlp_bias = bias;
  spec.rotary.interleaved = true;
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
