// Granite 3: Llama's equations with four multipliers, of embeddings, of q·k, of what a block adds, and of the logits.
#include "models/families.h"

namespace choral::models {

namespace {

Status read_multipliers(const io::ConfigMap& config, DecoderSpec& spec) {
  constexpr io::DoubleRange kMultiplier{-1e6, 1e6};
  CHORAL_TRY(const double embedding, config.get_double_or("embedding_multiplier", 1, kMultiplier));
  CHORAL_TRY(const double attention, config.get_double_or("attention_multiplier", 1, kMultiplier));
  CHORAL_TRY(const double residual, config.get_double_or("residual_multiplier", 1, kMultiplier));
  CHORAL_TRY(const double logits, config.get_double_or("logits_scaling", 1, {1e-6, 1e6}));
  spec.embedding_scale = static_cast<float>(embedding);
  spec.attention_scale = static_cast<float>(attention);
  spec.residual_multiplier = static_cast<float>(residual);
  spec.logit_scale = static_cast<float>(1 / logits);
  return {};
}

}  // namespace

Result<DecoderSpec> read_granite_spec(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", false));
  spec.output_bias = spec.qkv_bias;
  CHORAL_RETURN_IF_ERROR(read_multipliers(config, spec));
  return spec;
}

Result<std::unique_ptr<Model>> make_granite(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_granite_spec(config, options));
  CHORAL_TRY(spec.mlp_bias, config.get_bool_or("mlp_bias", false));
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
