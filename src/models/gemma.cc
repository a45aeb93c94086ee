// Gemma 2 and Gemma 3 (text): norms stored less one and around each block on both sides, scaled embeddings, a scale of q·k of
// their own, windows in most layers, tied weights. Gemma 2 has soft-caps; Gemma 3 norms heads of q and k and turns them by
// another base where a layer has a window.
#include <cmath>

#include "models/families.h"

namespace choral::models {
namespace {

constexpr int64_t kGemmaWindow = 4096;  // where the file has none

Result<DecoderSpec> read_gemma_spec(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  if (!config.contains("head_dim"))
    return corrupt("{} is missing", config.path_of("head_dim"));  // the family's is not hidden/heads
  CHORAL_TRY(spec.hidden_act, config.get_string_or("hidden_activation", "gelu_pytorch_tanh"));
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", false));
  spec.output_bias = spec.qkv_bias;
  CHORAL_TRY(spec.tie_word_embeddings, config.get_bool_or("tie_word_embeddings", true));
  spec.norm_weight = layers::NormWeight::kOnePlus;
  spec.post_norms = true;
  CHORAL_TRY(const double query_scalar, config.get_double_or("query_pre_attn_scalar", 256, {1e-3, 1e6}));
  spec.attention_scale = static_cast<float>(1.0 / std::sqrt(query_scalar));
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  return spec;
}

}  // namespace

Result<float> read_softcap(const io::ConfigMap& config, std::string_view key, double absent) {
  const bool is_null = config.object().find(key) != nullptr && !config.contains(key);
  if (is_null) return 0.0F;
  if (!config.contains(key)) return static_cast<float>(absent);
  CHORAL_TRY(const double cap, config.get_double(key, {1e-3, 1e6}));
  return static_cast<float>(cap);
}

Result<std::unique_ptr<Model>> make_gemma2(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_gemma_spec(config, options));
  CHORAL_TRY(spec.attention_softcap, read_softcap(config, "attn_logit_softcapping", 50));
  CHORAL_TRY(spec.logit_softcap, read_softcap(config, "final_logit_softcapping", 30));
  CHORAL_TRY(spec.sliding_window, read_alternating_windows(config, spec.layers, 2, kGemmaWindow));
  return make_decoder(std::move(spec), options);
}

Result<std::unique_ptr<Model>> make_gemma3(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_gemma_spec(config, options));
  CHORAL_TRY(const float attention_softcap, read_softcap(config, "attn_logit_softcapping", 0));
  if (attention_softcap != 0) return unsupported("{}: Gemma 3 has none", config.path_of("attn_logit_softcapping"));
  CHORAL_TRY(spec.logit_softcap, read_softcap(config, "final_logit_softcapping", 0));
  spec.qk_norm = layers::QkNorm::kEachHead;
  CHORAL_TRY(const int64_t pattern, config.get_int_or("sliding_window_pattern", 6, io::kPositive));
  CHORAL_TRY(spec.sliding_window, read_alternating_windows(config, spec.layers, pattern, kGemmaWindow));
  if (spec.sees_later) {  // half of it to each side
    for (int64_t& window : spec.sliding_window) window = window > 0 ? window / 2 + 1 : 0;
  }
  if (!config.contains("rope_theta")) spec.rotary.theta = 1e6;
  CHORAL_TRY(spec.window_rotary, read_window_rotary(config, spec.rotary));
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
