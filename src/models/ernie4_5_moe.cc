// ERNIE 4.5's mixtures: pairs of a head's neighbours turn; in some layers experts whose softmax scores a bias helps to choose,
// beside shared ones.
#include "models/families.h"

namespace choral::models {
namespace {

// Every moe_layer_interval-th layer from moe_layer_start_index to moe_layer_end_index.
Result<std::vector<bool>> read_ernie_layers(const io::ConfigMap& config, int64_t layers) {
  CHORAL_TRY(const int64_t first, config.get_int_or("moe_layer_start_index", 1, io::kNotNegative));
  CHORAL_TRY(const int64_t last, config.get_int_or("moe_layer_end_index", -1, {-1, io::kPositive.max}));
  CHORAL_TRY(const int64_t interval, config.get_int_or("moe_layer_interval", 1, io::kPositive));
  std::vector<bool> sparse(layers);
  for (int64_t i = 0; i < layers; ++i) sparse[i] = (i + 1) % interval == 0 && i >= first && (last == -1 || i <= last);
  return sparse;
}

}  // namespace

Result<std::unique_ptr<Model>> make_ernie4_5_moe(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  if (!config.contains("rms_norm_eps")) spec.rms_norm_eps = 1e-5F;
  if (!config.contains("rope_theta")) spec.rotary.theta = 500000;
  CHORAL_TRY(spec.tie_word_embeddings, config.get_bool_or("tie_word_embeddings", true));
  spec.rotary.interleaved = true;
  CHORAL_TRY(const bool bias, config.get_bool_or("use_bias", false));
  if (bias) return unsupported("{} is true; ERNIE's mixtures have no biases", config.path_of("use_bias"));
  CHORAL_TRY(spec.moe, read_moe_spec(config, spec.layers));
  spec.moe->names.selection_bias = "moe_statics.e_score_correction_bias";
  spec.moe->names.selection_bias_row = true;
  spec.moe->selection_bias = true;
  CHORAL_TRY(spec.moe->intermediate, config.get_int("moe_intermediate_size", kDimension));
  CHORAL_TRY(const int64_t shared, config.get_int_or("moe_num_shared_experts", 2, {0, 4096}));
  spec.moe->shared_intermediate = shared * spec.moe->intermediate;
  spec.moe->gating.renormalise = true;
  CHORAL_TRY(spec.moe->layers, read_ernie_layers(config, spec.layers));
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
