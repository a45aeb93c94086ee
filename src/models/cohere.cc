// Command R (Cohere) and Command R7B and A (Cohere2): attention and MLP of a layer take the same normed row; norms subtract the
// mean, those of q and k too, which the larger Command R has; q and k turn in pairs of neighbours, in Cohere2 in the layers that
// have a window, and in no other; logits have a factor.
#include "models/families.h"

namespace choral::models {
namespace {

Result<DecoderSpec> read_cohere_spec(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_TRY(const double eps, config.get_double_or("layer_norm_eps", 1e-5, {0, 1}));
  CHORAL_TRY(const double scale, config.get_double_or("logit_scale", 0.0625, {-1e6, 1e6}));
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", false));
  spec.output_bias = spec.qkv_bias;
  spec.rms_norm_eps = static_cast<float>(eps);
  spec.logit_scale = static_cast<float>(scale);
  spec.centred_norms = true;
  spec.parallel_blocks = true;
  spec.rotary.interleaved = true;
  return spec;
}

}  // namespace

Result<std::unique_ptr<Model>> make_cohere(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_cohere_spec(config, options));
  CHORAL_TRY(const bool qk_norm, config.get_bool_or("use_qk_norm", false));
  if (qk_norm) spec.qk_norm = layers::QkNorm::kEachCentredHead;
  return make_decoder(std::move(spec), options);
}

Result<std::unique_ptr<Model>> make_cohere2(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_cohere_spec(config, options));
  CHORAL_TRY(const int64_t pattern, config.get_int_or("sliding_window_pattern", 4, io::kPositive));
  CHORAL_TRY(spec.sliding_window, read_alternating_windows(config, spec.layers, pattern, 4096));
  for (const int64_t window : spec.sliding_window) spec.rotates.push_back(window > 0);
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
