// GLM-4.5, 4.6 and 4.7: half of a head turns, norms of q and k where the config says so, and after the first layers DeepSeek-V3's
// routing over experts beside shared ones. GLM-4.7-Flash is DeepSeek-V3 with other defaults.
#include "base/printable.h"
#include "models/families.h"

namespace choral::models {
namespace {

// Which layers have experts, by either field; where both are there they say the same.
Result<std::vector<bool>> read_glm_lite_layers(const io::ConfigMap& config, int64_t layers) {
  CHORAL_TRY(const int64_t dense, config.get_int_or("first_k_dense_replace", 1, io::kNotNegative));
  std::vector<bool> sparse(layers);
  for (int64_t i = 0; i < layers; ++i) sparse[i] = i >= dense;
  if (!config.contains("mlp_layer_types")) return sparse;
  CHORAL_TRY(const auto types, config.get_strings("mlp_layer_types"));
  if (std::ssize(types) != layers) {
    return corrupt("{} has {} entries for {} layers", config.path_of("mlp_layer_types"), types.size(), layers);
  }
  std::vector<bool> named(layers);
  for (int64_t i = 0; i < layers; ++i) {
    if (types[i] != "sparse" && types[i] != "dense") {
      return unsupported("{}: '{}' is not known here; known: dense, sparse", config.path_of("mlp_layer_types"),
                         printable(types[i]));
    }
    named[i] = types[i] == "sparse";
  }
  if (config.contains("first_k_dense_replace") && named != sparse) {
    return corrupt("{} says {}, mlp_layer_types other layers; remove one of the two", config.path_of("first_k_dense_replace"),
                   dense);
  }
  return named;
}

}  // namespace

Result<std::unique_ptr<Model>> make_glm4_moe(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  if (!config.contains("rms_norm_eps")) spec.rms_norm_eps = 1e-5F;
  if (!config.contains("partial_rotary_factor")) spec.rotary.rotary_dim = spec.head_dim / 2;
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", false));
  CHORAL_TRY(const bool normed, config.get_bool_or("use_qk_norm", false));
  if (normed) spec.qk_norm = layers::QkNorm::kEachHead;
  CHORAL_TRY(spec.moe, read_shared_moe_spec(config, spec.layers, {.shared = 1, .dense = 1}));
  CHORAL_RETURN_IF_ERROR(read_sigmoid_gating(config, {.routed_scaling = 1, .groups = 1}, *spec.moe));
  return make_decoder(std::move(spec), options);
}

Result<std::unique_ptr<Model>> make_glm4_moe_lite(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_latent_decoder_spec(config, options, {.shared = 1, .dense = 1}));
  if (!config.contains("rms_norm_eps")) spec.rms_norm_eps = 1e-5F;
  CHORAL_TRY(spec.rotary.interleaved, config.get_bool_or("rope_interleave", true));
  CHORAL_RETURN_IF_ERROR(read_sigmoid_gating(config, {.routed_scaling = 1.8, .groups = 1}, *spec.moe));
  CHORAL_TRY(spec.moe->layers, read_glm_lite_layers(config, spec.layers));
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
