// Hunyuan, dense: Llama's equations; each head of q and k is normed after the rotation, whose base a fixed factor stretches.
#include <cmath>

#include "models/families.h"

namespace choral::models {
namespace {

// "dynamic" with an alpha depends on no length: it is a base of alpha^(d/(d-2)) times the one given.
Result<io::ConfigMap> with_stretched_base(const io::ConfigMap& config) {
  CHORAL_TRY(const auto scaling, config.get_map_or_empty("rope_scaling"));
  CHORAL_TRY(const auto type, scaling.get_string_or("rope_type", ""));
  CHORAL_TRY(const double alpha, scaling.get_double_or("alpha", 0, {0, 1e9}));
  if (type != "dynamic" || alpha == 0) return config;
  CHORAL_TRY(const double head_dim, config.get_double("head_dim", {4, 1e6}));
  CHORAL_TRY(const double theta, config.get_double_or("rope_theta", 10000));
  io::ConfigObject out = config.object();
  out.set("rope_theta", theta * std::pow(alpha, head_dim / (head_dim - 2)));
  out.set("rope_scaling", io::ConfigValue());
  return io::ConfigMap(std::move(out), config.source());
}

}  // namespace

Result<std::unique_ptr<Model>> make_hunyuan(const io::ConfigMap& given, const ModelOptions& options) {
  CHORAL_TRY(const auto config, with_stretched_base(given));
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", false));
  spec.output_bias = spec.qkv_bias;
  spec.qk_norm = layers::QkNorm::kEachTurnedHead;
  spec.q_norm_name = "query_layernorm";
  spec.k_norm_name = "key_layernorm";
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
