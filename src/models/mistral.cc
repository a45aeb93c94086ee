// Mistral: Llama's equations; early versions look back only `sliding_window` tokens, in every layer, Ministral in some.
#include "models/families.h"

namespace choral::models {

Result<std::unique_ptr<Model>> make_mistral(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  const bool said = config.object().find("sliding_window") != nullptr;  // null is no window, an absent one is Mistral's first
  CHORAL_TRY(const int64_t window, config.get_int_or("sliding_window", said ? 0 : 4096, io::kNotNegative));
  spec.sliding_window.assign(spec.layers, window);
  if (config.contains("layer_types")) {
    CHORAL_TRY(spec.sliding_window, read_layer_windows(config, spec.layers, window));
  }
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
