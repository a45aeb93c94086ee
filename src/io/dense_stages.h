// Dense layers that a sentence-transformers model has behind its pooling: 2_Dense and so on, as modules.json lists them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral::io {

struct DenseStage {
  std::filesystem::path weights;  // a safetensors file
  int64_t in = 0, out = 0;
  bool bias = false;
  bool is_tanh = false;  // its activation; false: none
};

// Of the model in `folder`, in order; none where it has no modules.json. unsupported: a stage of another kind behind the model.
Result<std::vector<DenseStage>> read_dense_stages(const std::filesystem::path& folder);

// What a checkpoint and its configuration call the stage: "embedding_layers.0". Its tensors are `linear.weight`, `linear.bias`.
std::string dense_stage_name(size_t stage);
bool is_of_dense_stage(std::string_view tensor);

}  // namespace choral::io
