// Mistral: Llama's equations; early versions look back only `sliding_window` tokens, in every layer.
#include "models/families.h"

namespace choral::models {

Result<std::unique_ptr<Model>> make_mistral(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_TRY(const int64_t window, config.get_int_or("sliding_window", 0, io::kNotNegative));
  spec.sliding_window.assign(spec.layers, window);
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
