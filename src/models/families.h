// The families' makers, for the registry's table, and what two or more of them share in reading their configs.
#pragma once

#include "models/decoder.h"

namespace choral::models {

Result<std::unique_ptr<Model>> make_llama(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_mistral(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_qwen2(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_qwen3(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_phi3(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_gemma2(const io::ConfigMap& config, const ModelOptions& options);
Result<std::unique_ptr<Model>> make_gemma3(const io::ConfigMap& config, const ModelOptions& options);

// `window` in the layers that `layer_types` calls sliding_attention, 0 in the others.
Result<std::vector<int64_t>> read_layer_windows(const io::ConfigMap& config, int64_t layers, int64_t window);

// Qwen's window of each layer: `layer_types` where the file has it, else `sliding_window` from layer max_window_layers on;
// none at all unless use_sliding_window.
Result<std::vector<int64_t>> read_qwen_windows(const io::ConfigMap& config, int64_t layers);

}  // namespace choral::models
