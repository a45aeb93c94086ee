// Qwen2-MoE (Qwen1.5-MoE too): Qwen2's attention, and in its layers a mixture of experts beside a shared one, which a sigmoid of
// the token weighs.
#include <algorithm>

#include "models/families.h"

namespace choral::models {
namespace {

// Where the file has no layer_types: even layers below max_window_layers.
Result<std::vector<int64_t>> read_qwen2_moe_windows(const io::ConfigMap& config, int64_t layers) {
  CHORAL_TRY(const int64_t window, read_qwen_window(config));
  if (window > 0 && config.contains("layer_types")) return read_layer_windows(config, layers, window);
  CHORAL_TRY(const int64_t end, config.get_int_or("max_window_layers", 28, io::kNotNegative));
  std::vector<int64_t> windows(layers, 0);
  for (int64_t i = 0; i < std::min(end, layers); i += 2) windows[i] = window;
  return windows;
}

}  // namespace

Result<std::unique_ptr<Model>> make_qwen2_moe(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("qkv_bias", true));
  CHORAL_TRY(spec.sliding_window, read_qwen2_moe_windows(config, spec.layers));
  CHORAL_TRY(spec.moe, read_moe_spec(config, spec.layers));
  CHORAL_TRY(spec.moe->intermediate, config.get_int("moe_intermediate_size", kDimension));
  CHORAL_TRY(spec.moe->shared_intermediate, config.get_int("shared_expert_intermediate_size", kDimension));
  spec.moe->shared_gate = true;
  spec.moe->names.shared = "shared_expert";
  CHORAL_TRY(spec.moe->gating.renormalise, config.get_bool_or("norm_topk_prob", false));
  CHORAL_TRY(spec.moe->layers, read_sparse_layers(config, spec.layers));
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
