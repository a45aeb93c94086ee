// Hunyuan, dense and mixtures: Llama's equations; each head of q and k is normed after the rotation, whose base a fixed factor
// stretches. Every layer of a mixture has experts beside an MLP of the same width.
#include <algorithm>
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

Result<DecoderSpec> read_hunyuan_spec(const io::ConfigMap& given, const ModelOptions& options) {
  CHORAL_TRY(const auto config, with_stretched_base(given));
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", false));
  spec.output_bias = spec.qkv_bias;
  spec.qk_norm = layers::QkNorm::kEachTurnedHead;
  spec.q_norm_name = "query_layernorm";
  spec.k_norm_name = "key_layernorm";
  return spec;
}

// A number for all layers; files of mixtures have lists of what could differ from layer to layer.
Result<io::ConfigMap> with_one_number(const io::ConfigMap& config) {
  io::ConfigObject out = config.object();
  for (const char* key : {"num_experts", "num_experts_per_tok", "moe_intermediate_size", "num_shared_expert"}) {
    if (!config.contains(key)) continue;
    CHORAL_TRY(const auto numbers, config.get_int_or_ints(key));
    if (numbers.empty()) return corrupt("{} is empty", config.path_of(key));
    if (std::any_of(numbers.begin(), numbers.end(), [&](int64_t number) { return number != numbers.front(); }))
      return unsupported("{} differs from layer to layer; one number for all is supported", config.path_of(key));
    out.set(key, numbers.front());
  }
  if (const auto* head_dim = config.find("attention_head_dim"); head_dim != nullptr && !config.contains("head_dim"))
    out.set("head_dim", *head_dim);
  return io::ConfigMap(std::move(out), config.source());
}

// What its files say that only one value of is known.
Status check_mixture(const io::ConfigMap& config, int64_t intermediate) {
  for (const auto& [key, known] :
       {std::pair("use_qk_norm", true), std::pair("norm_topk_prob", true), std::pair("use_mixed_mlp_moe", true),
        std::pair("use_cla", false), std::pair("group_limited_greedy", false), std::pair("mlp_bias", false)}) {
    CHORAL_TRY(const bool value, config.get_bool_or(key, known));
    if (value != known) return unsupported("{} is {}; {} is supported", config.path_of(key), value, known);
  }
  for (const auto& [key, known] : {std::pair("moe_layer_num_skipped", int64_t{0}), std::pair("num_shared_expert", int64_t{1}),
                                   std::pair("moe_intermediate_size", intermediate)}) {
    CHORAL_TRY(const int64_t value, config.get_int_or(key, known));
    if (value != known) return unsupported("{} is {}; {} is supported", config.path_of(key), value, known);
  }
  CHORAL_TRY(const double scaling, config.get_double_or("routed_scaling_factor", 1));
  if (scaling != 1) return unsupported("{} is {}; 1 is supported", config.path_of("routed_scaling_factor"), scaling);
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> make_hunyuan(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_hunyuan_spec(config, options));
  return make_decoder(std::move(spec), options);
}

Result<std::unique_ptr<Model>> make_hunyuan_moe(const io::ConfigMap& given, const ModelOptions& options) {
  CHORAL_TRY(const auto config, with_one_number(given));
  CHORAL_TRY(auto spec, read_hunyuan_spec(config, options));
  CHORAL_RETURN_IF_ERROR(check_mixture(config, spec.intermediate));
  CHORAL_TRY(spec.moe, read_moe_spec(config, spec.layers));
  spec.moe->names.router = "gate.wg";
  spec.moe->names.shared = "shared_mlp";
  spec.moe->intermediate = spec.moe->shared_intermediate = spec.intermediate;
  spec.moe->gating.renormalise = true;
  spec.moe->layers.assign(spec.layers, true);
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
