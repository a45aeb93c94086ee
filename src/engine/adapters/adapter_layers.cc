#include "engine/adapters/adapter_layers.h"

#include <algorithm>

#include "lora/store/delta_norm.h"

namespace choral::engine {

Result<std::vector<AdapterLayer>> read_adapter_layers(const lora::AdapterSource& source,
                                                      std::span<const lora::LoRATarget> targets,
                                                      const lora::LoRALoadOptions& options) {
  CHORAL_TRY(const auto config, source.read_config());
  CHORAL_RETURN_IF_ERROR(config.validate_legal(options.config));
  io::ReadMemory memory(/*kept_bytes=*/0);
  CHORAL_TRY(const auto file, source.read_file(options.limits, memory));
  CHORAL_TRY(const auto model, lora::LoRAModel::from_adapter_file(file, config, targets, options));
  std::vector<AdapterLayer> layers;
  for (const auto& [name, weights] : model.loras()) {
    CHORAL_TRY(const double norm, lora::delta_norm(weights));
    layers.push_back({.module = name,
                      .kind = weights.is_dora() ? "DoRA" : "LoRA",
                      .rank = static_cast<int>(weights.rank),
                      .scaling = weights.scaling,
                      .norm = norm});
  }
  for (const auto* replaced : {&model.replaced_weights(), &model.replaced_biases()}) {
    const bool biases = replaced == &model.replaced_biases();
    for (const auto& [name, tensor] : *replaced) layers.push_back({.module = name, .kind = biases ? "bias" : "weight"});
  }
  for (const auto& [name, tensor] : model.embeddings_tensors()) layers.push_back({.module = name, .kind = "tokens"});
  for (const auto& tokens : model.trainable_tokens()) layers.push_back({.module = tokens.module, .kind = "tokens"});
  std::ranges::stable_sort(layers, {}, &AdapterLayer::module);
  return layers;
}

}  // namespace choral::engine
