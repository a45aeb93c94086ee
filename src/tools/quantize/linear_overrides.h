// Classes of one template in the place of every kind of linear layer: what looks at, or changes, the inputs of them all.
#pragma once

#include <memory>
#include <type_traits>

#include "layers/linear.h"
#include "platform/layer_overrides.h"

namespace choral::tools {

// Linear layers of class L are made as Instead<L>(builder, spec, arguments…), which derives from L. `arguments` live as long as
// the models that are made with `overrides`.
template <template <class> class Instead, class... Arguments>
Status replace_linear_layers(platform::LayerOverrides& overrides, Arguments&... arguments) {
  Status status;
  const auto replace = [&]<class Layer>(std::type_identity<Layer>) {
    if (!status.ok()) return;
    status = overrides.replace<Layer, layers::Builder>(
        Layer::kLayerName, [&arguments...](layers::Builder& builder, const typename Layer::Spec& spec) {
          return std::make_unique<Instead<Layer>>(builder, spec, arguments...);
        });
  };
  replace(std::type_identity<layers::ReplicatedLinear>());
  replace(std::type_identity<layers::ColumnParallelLinear>());
  replace(std::type_identity<layers::RowParallelLinear>());
  replace(std::type_identity<layers::MergedColumnParallelLinear>());
  replace(std::type_identity<layers::QKVParallelLinear>());
  return status;
}

}  // namespace choral::tools
