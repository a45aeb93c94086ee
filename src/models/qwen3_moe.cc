// Qwen3-MoE: Qwen3's attention, but a window is every layer's; layers have a mixture of experts, or an MLP where mlp_only_layers
// or decoder_sparse_step says so.
#include "models/families.h"

namespace choral::models {
namespace {

Result<std::vector<bool>> read_sparse_layers(const io::ConfigMap& config, int64_t layers) {
  CHORAL_TRY(const int64_t step, config.get_int_or("decoder_sparse_step", 1, io::kPositive));
  std::vector<bool> sparse(layers);
  for (int64_t i = 0; i < layers; ++i) sparse[i] = (i + 1) % step == 0;
  if (!config.contains("mlp_only_layers")) return sparse;
  CHORAL_TRY(const auto dense, config.get_ints("mlp_only_layers"));
  for (const int64_t i : dense) {
    if (i >= 0 && i < layers) sparse[i] = false;
  }
  return sparse;
}

}  // namespace

Result<std::unique_ptr<Model>> make_qwen3_moe(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_qwen3_spec(config, options));
  CHORAL_TRY(const int64_t window, read_qwen_window(config));
  spec.sliding_window.assign(spec.layers, window);
  CHORAL_TRY(spec.moe, read_moe_spec(config, spec.layers));
  CHORAL_TRY(spec.moe->intermediate, config.get_int("moe_intermediate_size", kDimension));
  CHORAL_TRY(spec.moe->gating.renormalise, config.get_bool_or("norm_topk_prob", false));
  CHORAL_TRY(spec.moe->layers, read_sparse_layers(config, spec.layers));
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
