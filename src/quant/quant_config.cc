#include "quant/quant_config.h"

#include <fmt/ranges.h>

#include <array>

#include "quant/unquantized.h"

namespace choral::quant {
namespace {

// One line a scheme. A table rather than self-registration: a static library drops object files that nobody names.
constexpr std::array<detail::Scheme, 1> kSchemes{{{"none", make_unquantized_config}}};

}  // namespace

Result<std::unique_ptr<QuantConfig>> make_quant_config(std::string_view name) {
  for (const auto& scheme : kSchemes) {
    if (scheme.name == name) return scheme.make();
  }
  return unsupported("no quantisation scheme is named '{}'; known: {}", name, fmt::join(quant_config_names(), ", "));
}

std::vector<std::string> quant_config_names() {
  std::vector<std::string> names;
  for (const auto& scheme : kSchemes) names.emplace_back(scheme.name);
  return names;
}

}  // namespace choral::quant
