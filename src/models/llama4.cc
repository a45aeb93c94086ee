// Llama 4 (text): layers that do not turn q and k stand between those that do, where heads are normed after they are turned and a
// token sees its chunk; experts whose weight, a sigmoid, acts on what they read, beside a shared one. Chunks and the temperature
// of long texts act from some length on; models are served up to there, where neither changes a number.
#include <algorithm>

#include "base/printable.h"
#include "models/families.h"

namespace choral::models {
namespace {

Result<std::vector<bool>> read_rotating_layers(const io::ConfigMap& config, int64_t layers) {
  CHORAL_TRY(const auto named, config.get_ints_or_empty("no_rope_layers", {0, 1}));  // 1: it turns
  CHORAL_TRY(const int64_t interval, config.get_int_or("no_rope_layer_interval", 4, io::kPositive));
  if (!named.empty() && std::ssize(named) < layers) {
    return corrupt("{} has {} entries for {} layers", config.path_of("no_rope_layers"), named.size(), layers);
  }
  std::vector<bool> rotates(layers);
  for (int64_t i = 0; i < layers; ++i) rotates[i] = named.empty() ? (i + 1) % interval != 0 : named[i] == 1;
  return rotates;
}

Result<std::vector<bool>> read_llama4_sparse_layers(const io::ConfigMap& config, int64_t layers) {
  CHORAL_TRY(const int64_t step, config.get_int_or("interleave_moe_layer_step", 1, io::kPositive));
  std::vector<bool> sparse(layers);
  for (int64_t i = 0; i < layers; ++i) sparse[i] = (i + 1) % step == 0;
  if (!config.contains("moe_layers")) return sparse;
  CHORAL_TRY(const auto named, config.get_ints("moe_layers"));
  for (int64_t i = 0; i < layers; ++i) sparse[i] = std::find(named.begin(), named.end(), i) != named.end();
  return sparse;
}

// How many positions there are before chunks or the temperature change anything.
Status check_llama4_length(const io::ConfigMap& config, const DecoderSpec& spec) {
  CHORAL_TRY(const auto types, config.get_strings_or_empty("layer_types"));
  for (const auto& type : types) {
    if (type != "chunked_attention" && type != "full_attention") {
      return unsupported("{}: '{}' is not known here; known: chunked_attention, full_attention", config.path_of("layer_types"),
                         printable(type));
    }
  }
  const bool is_null = config.object().find("attention_chunk_size") != nullptr && !config.contains("attention_chunk_size");
  CHORAL_TRY(const int64_t chunk, config.get_int_or("attention_chunk_size", 8192, io::kPositive));
  CHORAL_TRY(const bool tuned, config.get_bool_or("attn_temperature_tuning", true));
  CHORAL_TRY(const int64_t floor, config.get_int_or("floor_scale", 8192, {2, io::kPositive.max}));
  if (!is_null && spec.max_positions > chunk) {
    return unsupported("{} is {}: texts beyond a chunk are not served; give --max-model-len {} or less",
                       config.path_of("attention_chunk_size"), chunk, tuned ? std::min(chunk, floor - 1) : chunk);
  }
  if (tuned && spec.max_positions >= floor) {
    return unsupported(
        "{} is {}: from there on attention has another temperature, which is not served; give --max-model-len {} "
        "or less",
        config.path_of("floor_scale"), floor, floor - 1);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> make_llama4(const io::ConfigMap& config, const ModelOptions& options) {
  if (!config.contains("head_dim")) return corrupt("{} is missing", config.path_of("head_dim"));
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  if (!config.contains("rms_norm_eps")) spec.rms_norm_eps = 1e-5F;
  if (!config.contains("rope_theta")) spec.rotary.theta = 500000;
  CHORAL_RETURN_IF_ERROR(check_llama4_length(config, spec));
  spec.rotary.interleaved = true;
  CHORAL_TRY(spec.rotates, read_rotating_layers(config, spec.layers));
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", false));
  spec.output_bias = spec.qkv_bias;
  CHORAL_TRY(const bool normed, config.get_bool_or("use_qk_norm", true));
  if (normed) spec.qk_norm = layers::QkNorm::kUnweightedTurnedHead;

  CHORAL_TRY(spec.moe, read_moe_spec(config, spec.layers));
  spec.moe->block = spec.mlp_block = "feed_forward";
  spec.moe->names.router = "router";
  spec.moe->names.shared = "shared_expert";
  spec.moe->merged_gate_up = true;
  spec.moe->weigh_input = true;
  spec.moe->gating.scoring = kernels::GateScoring::kSigmoid;
  spec.moe->intermediate = spec.moe->shared_intermediate = spec.intermediate;
  CHORAL_TRY(spec.moe->layers, read_llama4_sparse_layers(config, spec.layers));
  CHORAL_TRY(spec.intermediate, config.get_int_or("intermediate_size_mlp", 16384, kDimension));
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
