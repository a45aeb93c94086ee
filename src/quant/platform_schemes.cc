#include "quant/platform_schemes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace choral::quant {
namespace {

class PlatformSchemes : public QuantConfig {
 public:
  PlatformSchemes(std::unique_ptr<QuantConfig> usual, const platform::SchemeOverrides& overrides)
      : usual_(std::move(usual)), overrides_(overrides) {}

  std::vector<std::string> notes() const override { return usual_->notes(); }

  Result<LayerScheme> scheme_for(LayerKind kind, std::string_view layer) const override {
    CHORAL_TRY(auto chosen, usual_->scheme_for(kind, layer));
    const std::string name = chosen.scheme->name().empty() ? "FLOAT" : chosen.scheme->name();
    const auto* factory = overrides_.find<Scheme>(name, layer_kind_name(kind));
    if (factory == nullptr) return chosen;
    SchemePtr& made = made_[{chosen.scheme, kind}];  // one for all layers that may be computed as one
    if (made == nullptr) made = (*factory)(chosen.scheme);
    if (made == nullptr) return internal_error("the platform made no scheme for {} of {}", name, layer);
    return LayerScheme{made, fmt::format("{}; {} by the platform", chosen.why, name)};
  }

 private:
  std::unique_ptr<QuantConfig> usual_;
  platform::SchemeOverrides overrides_;
  mutable std::map<std::pair<SchemePtr, LayerKind>, SchemePtr> made_;
};

}  // namespace

Result<std::unique_ptr<QuantConfig>> with_platform_schemes(std::unique_ptr<QuantConfig> usual,
                                                           const platform::SchemeOverrides& overrides) {
  if (overrides.empty()) return usual;
  for (const auto& [scheme, kind] : overrides.keys()) {
    const auto kinds = layer_kind_names();
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) continue;
    return invalid_argument("the platform brings {} for layers of kind '{}'; there are {}", scheme, kind, fmt::join(kinds, ", "));
  }
  return std::make_unique<PlatformSchemes>(std::move(usual), overrides);
}

}  // namespace choral::quant
