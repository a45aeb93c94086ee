// config.json's quantization_config with quant_method "compressed-tensors", as llm-compressor writes it: groups of layers by
// target, each with how weights and activations were quantised, and layers that were not.
#pragma once

#include "io/config_map.h"
#include "quant/quant_config.h"

namespace choral::quant {

// A group that is quantised in a way that is not read is an error that names it, whether a layer is in it or not.
Result<std::unique_ptr<QuantConfig>> read_compressed_tensors(const io::ConfigMap& quantization_config);

}  // namespace choral::quant
