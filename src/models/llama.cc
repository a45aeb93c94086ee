// Llama 2 and 3, and everything that says LlamaForCausalLM (SmolLM2, TinyLlama, …).
#include "models/families.h"

namespace choral::models {

Result<std::unique_ptr<Model>> make_llama(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", false));
  spec.output_bias = spec.qkv_bias;
  CHORAL_TRY(spec.mlp_bias, config.get_bool_or("mlp_bias", false));
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
