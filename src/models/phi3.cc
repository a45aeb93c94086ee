// Phi-3 (and Phi-3.5, Phi-4-mini): q, k and v are stored as one matrix, gate and up as another, and adapters know them as such;
// longrope, of part of a head in some.
#include "models/families.h"

namespace choral::models {

Result<std::unique_ptr<Model>> make_phi3(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  spec.merged_projections = true;
  if (!config.contains("rms_norm_eps")) spec.rms_norm_eps = 1e-5F;
  CHORAL_TRY(const int64_t window, config.get_int_or("sliding_window", 0, io::kNotNegative));
  spec.sliding_window.assign(spec.layers, window);
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
