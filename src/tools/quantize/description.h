// What a quantised checkpoint says of itself: config.json with compressed-tensors' quantization_config, or ModelSlim's
// quant_model_description.json.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "quant/written/written_scheme.h"
#include "tools/quantize/linear_layers.h"

namespace choral::tools {

// `config_json`, the text of a config.json, with the description of `layers`. Layers whose scales are for another number of k
// than most others' have a group of their own.
Result<std::string> with_quantization_config(const std::string& config_json, const quant::WrittenScheme& scheme,
                                             std::span<const LinearLayer> layers);

// `types`: of every tensor of the checkpoint and of the weights they came from. Unsupported when layers need different sizes of
// groups, of which the format has one.
Result<std::string> modelslim_description(const quant::WrittenScheme& scheme, std::span<const LinearLayer> layers,
                                          const std::map<std::string, std::string_view>& types);

}  // namespace choral::tools
