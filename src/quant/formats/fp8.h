// Descriptions of fp8 checkpoints in config.json's quantization_config: quant_method "fp8", as DeepSeek, transformers and AutoFP8
// write it, and fp8 groups of layers within compressed-tensors. Which activations a checkpoint was made for is checked and then
// left aside: x stays float (schemes/fp8.cc).
#pragma once

#include <map>
#include <string>

#include "quant/quant_config.h"

namespace choral::quant {

// The scheme of a member of compressed-tensors' config_groups whose weights are floats of 8 bits. Groups alike share a scheme: it
// is kept in `known`.
Result<SchemePtr> fp8_group_scheme(const io::ConfigMap& group, std::map<std::string, SchemePtr>& known);

}  // namespace choral::quant
