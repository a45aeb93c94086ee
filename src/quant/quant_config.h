// Which method serves which layer: made once a model from its files and the user's wishes.
// A scheme is one file and one line of the table in quant_config.cc; an unknown name is an error that lists the known ones.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quant/linear_method.h"

namespace choral::quant {

enum class LayerKind { kLinear, kEmbedding, kLmHead };

class QuantConfig {
 public:
  virtual ~QuantConfig() = default;
  virtual std::string_view name() const = 0;
  virtual Result<std::unique_ptr<LinearMethod>> get_quant_method(LayerKind kind, std::string_view prefix) const = 0;
};

// The scheme named `name` ("none", later "w8a8_dynamic", …).
Result<std::unique_ptr<QuantConfig>> make_quant_config(std::string_view name);
std::vector<std::string> quant_config_names();

namespace detail {
using Factory = std::unique_ptr<QuantConfig> (*)();
struct Scheme {
  std::string_view name;
  Factory make;
};
}  // namespace detail

}  // namespace choral::quant
