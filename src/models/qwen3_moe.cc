// Qwen3-MoE: Qwen3's attention, but a window is every layer's; layers have a mixture of experts, or an MLP where mlp_only_layers
// or decoder_sparse_step says so.
#include "models/families.h"

namespace choral::models {

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
