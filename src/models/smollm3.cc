// SmolLM3: Llama's equations; every fourth layer does not turn q and k with the position, unless the config says which do.
// Windows, where it has them, are in those layers.
#include <algorithm>

#include "models/families.h"

namespace choral::models {
namespace {

Result<std::vector<bool>> read_rotating_layers(const io::ConfigMap& config, int64_t layers) {
  std::vector<bool> rotates(layers);
  if (!config.contains("no_rope_layers")) {
    CHORAL_TRY(const int64_t interval, config.get_int_or("no_rope_layer_interval", 4, io::kPositive));
    for (int64_t i = 0; i < layers; ++i) rotates[i] = (i + 1) % interval != 0;
    return rotates;
  }
  CHORAL_TRY(const auto said, config.get_ints("no_rope_layers", {0, 1}));  // 1: it turns them
  if (std::ssize(said) < layers) {
    return corrupt("{} has {} entries for {} layers", config.path_of("no_rope_layers"), said.size(), layers);
  }
  for (int64_t i = 0; i < layers; ++i) rotates[i] = said[i] == 1;
  return rotates;
}

Result<std::vector<int64_t>> read_smollm3_windows(const io::ConfigMap& config, const std::vector<bool>& rotates) {
  CHORAL_TRY(const int64_t window, config.get_int_or("sliding_window", 0, io::kPositive));
  if (config.contains("layer_types")) return read_layer_windows(config, std::ssize(rotates), window);
  CHORAL_TRY(const bool used, config.get_bool_or("use_sliding_window", false));
  std::vector<int64_t> windows(rotates.size(), 0);
  if (used) std::transform(rotates.begin(), rotates.end(), windows.begin(), [&](bool turns) { return turns ? 0 : window; });
  return windows;
}

}  // namespace

Result<std::unique_ptr<Model>> make_smollm3(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", false));
  spec.output_bias = spec.qkv_bias;
  CHORAL_TRY(spec.mlp_bias, config.get_bool_or("mlp_bias", false));
  CHORAL_TRY(spec.rotates, read_rotating_layers(config, spec.layers));
  CHORAL_TRY(spec.sliding_window, read_smollm3_windows(config, spec.rotates));
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
