// MiniMax-M2: q and k are normed over all their heads, part of a head turns, and every layer has a mixture of experts that a
// sigmoid scores and a bias helps to choose.
#include "models/families.h"

namespace choral::models {
namespace {

// What its files say that only one value of is known.
Status check_minimax(const io::ConfigMap& config) {
  for (const auto& [key, known] : {std::pair("scoring_func", "sigmoid"), std::pair("qk_norm_type", "per_layer")}) {
    CHORAL_TRY(const std::string value, config.get_string_or(key, known));
    if (value != known) return unsupported("{} is '{}'; {} is supported", config.path_of(key), value, known);
  }
  for (const char* key : {"use_qk_norm", "use_routing_bias"}) {
    CHORAL_TRY(const bool value, config.get_bool_or(key, true));
    if (!value) return unsupported("{} is false; MiniMax-M2 has it", config.path_of(key));
  }
  CHORAL_TRY(const int64_t shared, config.get_int_or("shared_intermediate_size", 0));
  if (shared != 0) return unsupported("{} is {}; 0 is supported", config.path_of("shared_intermediate_size"), shared);
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> make_minimax_m2(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_RETURN_IF_ERROR(check_minimax(config));
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  if (!config.contains("rope_theta")) spec.rotary.theta = 5e6;
  if (!config.contains("partial_rotary_factor")) {
    CHORAL_TRY(spec.rotary.rotary_dim, config.get_int_or("rotary_dim", spec.head_dim, {1, spec.head_dim}));
  }
  spec.qk_norm = layers::QkNorm::kAllHeads;
  CHORAL_TRY(spec.moe, read_moe_spec(config, spec.layers));
  spec.moe->block = "block_sparse_moe";
  spec.moe->names = {.router = "gate", .gate = "w1", .up = "w3", .down = "w2", .selection_bias = "e_score_correction_bias"};
  spec.moe->intermediate = spec.intermediate;
  spec.moe->selection_bias = true;
  spec.moe->gating.scoring = kernels::GateScoring::kSigmoid;
  spec.moe->gating.renormalise = true;
  spec.moe->layers.assign(spec.layers, true);
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
