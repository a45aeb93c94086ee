// Qwen3: no biases unless the config says so; each head of q and k is normed before the rotation; head_dim stands in the config.
#include "models/families.h"

namespace choral::models {

Result<DecoderSpec> read_qwen3_spec(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", false));
  spec.output_bias = spec.qkv_bias;
  spec.qk_norm = layers::QkNorm::kEachHead;
  CHORAL_TRY(spec.sliding_window, read_qwen_windows(config, spec.layers));
  return spec;
}

Result<std::unique_ptr<Model>> make_qwen3(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_qwen3_spec(config, options));
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
