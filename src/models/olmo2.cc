// OLMo 2 and OLMo 3: what attention and MLP give is normed, not what they take; all of q and all of k are normed before the
// rotation. OLMo 3 has a window in three of four layers, and there the plain rotation, whatever the other layers' is.
#include "models/families.h"

namespace choral::models {
namespace {

Result<DecoderSpec> read_olmo2_spec(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", false));
  spec.output_bias = spec.qkv_bias;
  spec.pre_norms = false;
  spec.post_norms = true;
  spec.qk_norm = layers::QkNorm::kAllHeads;
  return spec;
}

}  // namespace

Result<std::unique_ptr<Model>> make_olmo2(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_olmo2_spec(config, options));
  return make_decoder(std::move(spec), options);
}

Result<std::unique_ptr<Model>> make_olmo3(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_olmo2_spec(config, options));
  CHORAL_TRY(spec.sliding_window, read_alternating_windows(config, spec.layers, 4, 4096));
  CHORAL_TRY(spec.window_rotary, read_window_rotary(config, spec.rotary));
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
