// Which linear layers a model has: asked of the model itself, built without weights, so that what is quantised on disk is what
// --quantization would quantise.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/config_map.h"

namespace choral::tools {

// One matrix of the checkpoint, `name`.weight [rows, k]. Embeddings and heads are none.
struct LinearLayer {
  std::string name;
  int64_t rows = 0, k = 0;
  bool ignored = false;       // stays float
  bool row_parallel = false;  // engines on several devices divide it along k
};

// `ignore`: regular expressions of whole names. One that no layer matches is an error, and so is one that divides layers which
// are computed as one matrix.
Result<std::vector<LinearLayer>> find_linear_layers(const io::ConfigMap& config, std::span<const std::string> ignore);

}  // namespace choral::tools
