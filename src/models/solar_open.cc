// Solar Open: Llama's attention with a head size of its own, and in every layer DeepSeek-V3's routing over experts beside shared
// ones.
#include "models/families.h"

namespace choral::models {
namespace {

// No layer has an MLP of its own, so its configuration class has no size for one.
Result<io::ConfigMap> with_dense_size(const io::ConfigMap& config) {
  if (config.contains("intermediate_size")) return config;
  CHORAL_TRY(const int64_t size, config.get_int("moe_intermediate_size", kDimension));
  io::ConfigObject fields = config.object();
  fields.set("intermediate_size", size);
  return io::ConfigMap(std::move(fields), config.source());
}

}  // namespace

Result<std::unique_ptr<Model>> make_solar_open(const io::ConfigMap& given, const ModelOptions& options) {
  CHORAL_TRY(const io::ConfigMap config, with_dense_size(given));
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  if (!config.contains("rms_norm_eps")) spec.rms_norm_eps = 1e-5F;
  if (!config.contains("head_dim")) return corrupt("{} is missing", config.path_of("head_dim"));
  CHORAL_TRY(const bool normed, config.get_bool_or("use_qk_norm", false));
  if (normed) return unsupported("{} is true; Solar Open has no norms of q and k", config.path_of("use_qk_norm"));
  CHORAL_TRY(const int64_t dense, config.get_int_or("first_k_dense_replace", 0));
  if (dense != 0)
    return unsupported("{} is {}; every layer of Solar Open has experts", config.path_of("first_k_dense_replace"), dense);
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", false));
  CHORAL_TRY(spec.moe, read_shared_moe_spec(config, spec.layers, {.shared = 1}));
  CHORAL_RETURN_IF_ERROR(read_sigmoid_gating(config, {.routed_scaling = 1, .groups = 1}, *spec.moe));
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
