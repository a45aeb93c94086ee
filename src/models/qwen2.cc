// Qwen2 and Qwen2.5: biases on q, k and v only; a sliding window in the upper layers when use_sliding_window says so.
#include "models/families.h"

namespace choral::models {

Result<std::unique_ptr<Model>> make_qwen2(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  spec.qkv_bias = true;
  CHORAL_TRY(spec.sliding_window, read_qwen_windows(config, spec.layers));
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
