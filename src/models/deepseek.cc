// DeepSeek-V2 and -V3: latent attention, whose scale yarn's mscale changes, and after the first layers a mixture of experts
// beside shared ones. V2 scores experts by softmax and may keep them within groups; V3 by a sigmoid, chosen with a bias. V3.2 is
// V3 with an indexer, which chooses the tokens that a token sees; up to so many positions it chooses all.
#include <algorithm>
#include <cmath>

#include "models/families.h"
#include "models/rope_config.h"

namespace choral::models {
namespace {

// Yarn multiplies cos and sin by the quotient of two mscales; the one over all dimensions acts on q·k, from either side.
Result<float> read_attention_scale(const io::ConfigMap& config, int64_t key_dim) {
  double scale = 1.0 / std::sqrt(static_cast<double>(key_dim));
  CHORAL_TRY(const auto scaling, config.get_map_or_empty("rope_scaling"));
  CHORAL_TRY(const double mscale_all_dim, scaling.get_double_or("mscale_all_dim", 0));
  CHORAL_TRY(const double factor, scaling.get_double_or("factor", 1));
  if (mscale_all_dim != 0 && factor > 1) {
    const double mscale = 0.1 * mscale_all_dim * std::log(factor) + 1.0;
    scale *= mscale * mscale;
  }
  return static_cast<float>(scale);
}

Result<LatentSpec> read_latent_spec(const io::ConfigMap& config) {
  LatentSpec latent;
  CHORAL_TRY(latent.kv_rank, config.get_int("kv_lora_rank", kDimension));
  if (config.contains("q_lora_rank")) {
    CHORAL_TRY(latent.q_rank, config.get_int("q_lora_rank", kDimension));
  }
  CHORAL_TRY(latent.nope_dim, config.get_int("qk_nope_head_dim", kDimension));
  CHORAL_TRY(latent.rope_dim, config.get_int("qk_rope_head_dim", kDimension));
  CHORAL_TRY(latent.value_dim, config.get_int("v_head_dim", kDimension));
  CHORAL_TRY(latent.bias, config.get_bool_or("attention_bias", false));
  return latent;
}

Result<int64_t> read_group_count(const io::ConfigMap& config, std::string_view key, std::optional<int64_t> absent) {
  return absent ? config.get_int_or(key, *absent, io::kPositive) : config.get_int(key, io::kPositive);
}

Status read_groups(const io::ConfigMap& config, const MoeSpec& moe, std::optional<int64_t> absent, kernels::MoeGating& gating) {
  CHORAL_TRY(gating.groups, read_group_count(config, "n_group", absent));
  CHORAL_TRY(gating.top_groups, read_group_count(config, "topk_group", absent));
  const int64_t least = gating.group_score == kernels::GroupScore::kTopTwoSum ? 2 : 1;  // experts of a group
  if (moe.experts % gating.groups != 0 || moe.experts / gating.groups < least || gating.top_groups > gating.groups ||
      gating.top_k > gating.top_groups * (moe.experts / gating.groups)) {
    return corrupt("{}: {} experts in {} groups, of which {} are kept, do not give {} experts to a token",
                   config.path_of("n_group"), moe.experts, gating.groups, gating.top_groups, gating.top_k);
  }
  return {};
}

Status read_routed_scaling(const io::ConfigMap& config, double absent, kernels::MoeGating& gating) {
  CHORAL_TRY(const double scaling, config.get_double_or("routed_scaling_factor", absent, {0, 1e6}));
  gating.routed_scaling = static_cast<float>(scaling);
  return {};
}

}  // namespace

Result<MoeSpec> read_shared_moe_spec(const io::ConfigMap& config, int64_t layers, const SharedMoeDefaults& absent) {
  CHORAL_TRY(MoeSpec moe, read_moe_spec(config, layers));
  CHORAL_TRY(moe.intermediate, config.get_int("moe_intermediate_size", kDimension));
  CHORAL_TRY(const int64_t shared, config.get_int_or("n_shared_experts", absent.shared, {0, 4096}));
  moe.shared_intermediate = shared * moe.intermediate;
  CHORAL_TRY(const int64_t dense, config.get_int_or("first_k_dense_replace", absent.dense, io::kNotNegative));
  for (int64_t i = 0; i < layers; ++i) moe.layers.push_back(i >= dense);
  return moe;
}

Status read_sigmoid_gating(const io::ConfigMap& config, const GroupGatingDefaults& absent, MoeSpec& moe) {
  moe.selection_bias = true;
  moe.gating.scoring = kernels::GateScoring::kSigmoid;
  return read_group_gating(config, absent, moe);
}

Status read_group_gating(const io::ConfigMap& config, const GroupGatingDefaults& absent, MoeSpec& moe) {
  moe.gating.group_score = kernels::GroupScore::kTopTwoSum;
  CHORAL_TRY(moe.gating.renormalise, config.get_bool_or("norm_topk_prob", true));
  CHORAL_RETURN_IF_ERROR(read_routed_scaling(config, absent.routed_scaling, moe.gating));
  return read_groups(config, moe, absent.groups, moe.gating);
}

Result<DecoderSpec> read_latent_decoder_spec(const io::ConfigMap& config, const ModelOptions& options,
                                             const SharedMoeDefaults& absent) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_TRY(spec.latent, read_latent_spec(config));
  CHORAL_TRY(const int64_t positions, config.get_int("max_position_embeddings", kDimension));
  CHORAL_TRY(spec.rotary, read_rope_config(config, spec.latent->rope_dim, spec.max_positions, positions));
  CHORAL_TRY(spec.attention_scale, read_attention_scale(config, spec.latent->nope_dim + spec.latent->rope_dim));
  CHORAL_TRY(spec.mlp_bias, config.get_bool_or("mlp_bias", false));
  if (spec.mlp_bias) return unsupported("{} is true", config.path_of("mlp_bias"));
  CHORAL_TRY(const int64_t frequency, config.get_int_or("moe_layer_freq", 1));
  if (frequency != 1) return unsupported("{} is {}; 1 is supported", config.path_of("moe_layer_freq"), frequency);

  CHORAL_TRY(spec.moe, read_shared_moe_spec(config, spec.layers, absent));
  return spec;
}

Result<std::unique_ptr<Model>> make_deepseek_v2(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_latent_decoder_spec(config, options));
  spec.rotary.interleaved = true;
  CHORAL_RETURN_IF_ERROR(read_routed_scaling(config, 1, spec.moe->gating));
  CHORAL_TRY(const std::string method, config.get_string_or("topk_method", "greedy"));
  if (method == "group_limited_greedy") {
    CHORAL_RETURN_IF_ERROR(read_groups(config, *spec.moe, {}, spec.moe->gating));
  } else if (method != "greedy") {
    return unsupported("{} is '{}'; greedy and group_limited_greedy are supported", config.path_of("topk_method"), method);
  }
  CHORAL_TRY(const std::string scoring, config.get_string_or("scoring_func", "softmax"));
  if (scoring != "softmax") return unsupported("{} is '{}'; DeepSeek-V2 has softmax", config.path_of("scoring_func"), scoring);
  return make_decoder(std::move(spec), options);
}

namespace {

Result<DecoderSpec> read_v3_spec(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_latent_decoder_spec(config, options));
  CHORAL_TRY(spec.rotary.interleaved, config.get_bool_or("rope_interleave", true));
  CHORAL_RETURN_IF_ERROR(read_sigmoid_gating(config, {.routed_scaling = 2.5}, *spec.moe));
  return spec;
}

}  // namespace

Result<std::unique_ptr<Model>> make_deepseek_v3(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_v3_spec(config, options));
  return make_decoder(std::move(spec), options);
}

Result<std::unique_ptr<Model>> make_deepseek_v32(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_v3_spec(config, options));
  CHORAL_TRY(const int64_t chosen, config.get_int_or("index_topk", 2048, io::kPositive));
  if (spec.max_positions > chosen) {
    return unsupported(
        "{} is {}: of longer texts a token sees so many of the others, which is not served; give --max-model-len {} or less",
        config.path_of("index_topk"), chosen, chosen);
  }
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
