// The float model that is quantised: found, opened and held to what its layers say of themselves before anything is written.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/config_map.h"
#include "io/model_location.h"
#include "quant/written/written_scheme.h"
#include "tools/quantize.h"
#include "tools/quantize/linear_layers.h"

namespace choral::tools {

constexpr std::string_view kWeightSuffix = ".weight";

struct FloatModel {
  io::ModelLocation location;
  io::ConfigMap config;
  std::shared_ptr<const io::Checkpoint> checkpoint;
  std::vector<LinearLayer> layers;  // sorted by name

  // Every layer that is not ignored has a float weight of its size, which `scheme` can take.
  static Result<FloatModel> open(const QuantizeOptions& options, const quant::WrittenScheme& scheme);
  // Of a tensor that is the weight of a layer that is quantised; else null.
  const LinearLayer* quantised_layer(std::string_view tensor) const;
  int64_t ignored_layers() const;
};

bool is_float(DType type);

}  // namespace choral::tools
