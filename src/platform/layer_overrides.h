// Classes that stand in for a layer's own: an embedder's or a test's RMSNorm, a whole attention projection done otherwise. A
// CustomOp or PluggableLayer is built through Builder::make, which asks here first. One object per engine
// (EngineOptions::layer_overrides), filled before a model is built and read-only then; a name that no layer declares is refused,
// since it would never be used.
//
// A layer takes part by two members: `static constexpr std::string_view kLayerName` (its public name) and `struct Spec` (what its
// constructor takes besides the builder).
#pragma once

#include <any>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral::platform {

class LayerOverrides {
 public:
  template <class Layer, class Builder>
  using Factory = std::function<std::unique_ptr<Layer>(Builder&, const typename Layer::Spec&)>;

  // Layers of class `Layer` are made by `factory` from now on. `name` is Layer's public name.
  template <class Layer, class Builder>
  Status replace(std::string_view name, Factory<Layer, Builder> factory) {
    if (name != Layer::kLayerName) {
      return invalid_argument("an override for '{}' was given for the layer that is called '{}'; it would never be used", name,
                              Layer::kLayerName);
    }
    factories_[std::string(name)] = std::move(factory);
    return {};
  }

  // Null when the layer's own class is used.
  template <class Layer, class Builder>
  const Factory<Layer, Builder>* find() const {
    const auto found = factories_.find(Layer::kLayerName);
    return found == factories_.end() ? nullptr : std::any_cast<Factory<Layer, Builder>>(&found->second);
  }

  // The layers whose class is replaced; sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : factories_) names.push_back(entry.first);
    return names;
  }

 private:
  std::map<std::string, std::any, std::less<>> factories_;
};

}  // namespace choral::platform
