// Mistral: Llama's equations; early versions look back only `sliding_window` tokens, in every layer, Ministral in some. Ministral
// 3 multiplies queries by a factor that grows with their position. So does Mistral 4, which is DeepSeek-V3 but for that and its
// experts, which are scored by softmax.
#include <cmath>

#include "models/families.h"

namespace choral::models {
namespace {

Result<kernels::PositionScale> read_query_scale(const io::ConfigMap& config) {
  CHORAL_TRY(const auto scaling, config.get_map("rope_scaling"));
  kernels::PositionScale scale;
  CHORAL_TRY(scale.beta, scaling.get_double("llama_4_scaling_beta", {0, 1e3}));
  CHORAL_TRY(scale.period, scaling.get_int("original_max_position_embeddings", io::kPositive));
  return scale;
}

// Mistral 4 says twice how much of a head turns: by its size, and as a part of the whole head.
Status check_turned_part(const io::ConfigMap& config, const LatentSpec& latent) {
  const auto turned = static_cast<double>(latent.rope_dim), whole = static_cast<double>(latent.nope_dim + latent.rope_dim);
  CHORAL_TRY(const double part, config.get_double_or("partial_rotary_factor", turned / whole));
  if (std::abs(part * whole - turned) < 0.5) return {};
  return corrupt("{} is {}, and qk_rope_head_dim {} of {}", config.path_of("partial_rotary_factor"), part, latent.rope_dim,
                 latent.nope_dim + latent.rope_dim);
}

}  // namespace

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

Result<std::unique_ptr<Model>> make_ministral3(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_TRY(const int64_t window, config.get_int_or("sliding_window", 0, io::kPositive));
  spec.sliding_window.assign(spec.layers, window);
  CHORAL_TRY(spec.query_scale, read_query_scale(config));
  return make_decoder(std::move(spec), options);
}

Result<std::unique_ptr<Model>> make_mistral4(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_latent_decoder_spec(config, options, {.shared = 1}));
  CHORAL_RETURN_IF_ERROR(check_turned_part(config, *spec.latent));
  spec.rotary.rotary_dim = spec.latent->rope_dim;
  CHORAL_TRY(spec.rotary.interleaved, config.get_bool_or("rope_interleave", true));
  CHORAL_TRY(spec.query_scale, read_query_scale(config));
  CHORAL_RETURN_IF_ERROR(read_group_gating(config, {.routed_scaling = 1, .groups = 1}, *spec.moe));
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
