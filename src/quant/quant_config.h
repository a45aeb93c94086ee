// Which method serves which layer: made once a model from its files and the user's wish.
// A scheme is one file in schemes/ and one line of the table in quant_config.cc; an unknown name is an error that lists the known
// ones.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/config_map.h"
#include "quant/linear_method.h"

namespace choral::quant {

enum class LayerKind { kLinear, kEmbedding, kLmHead };

class QuantConfig {
 public:
  virtual ~QuantConfig() = default;
  virtual std::string_view name() const = 0;
  virtual Result<std::unique_ptr<LinearMethod>> get_quant_method(LayerKind kind, const LinearShape& shape) const = 0;
};

// --quantization: "auto", the checkpoint as it is, or one of in_flight_names() for a float checkpoint's linear layers.
Status check_quantization(std::string_view wish);
std::vector<std::string> in_flight_names();

// For a model of `config` and a wish.
Result<std::unique_ptr<QuantConfig>> make_quant_config(const io::ConfigMap& config, std::string_view wish);

}  // namespace choral::quant
