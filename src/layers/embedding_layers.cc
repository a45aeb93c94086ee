#include "layers/embedding_layers.h"

#include <algorithm>
#include <cmath>

#include "platform/host_view.h"

namespace choral::layers {
namespace {

// Stored as its file has it, whatever the checkpoint says of its linear layers, and no target of adapters.
class EmbeddingLayer : public ReplicatedLinear {
 public:
  static constexpr std::string_view kLayerName = "embedding_layer";
  EmbeddingLayer(Builder& builder, const Spec& spec) : ReplicatedLinear(builder, quant::LayerKind::kEmbedding, spec) {}
};

}  // namespace

EmbeddingLayers::EmbeddingLayers(Builder& builder, const std::vector<Spec>& specs) {
  for (const auto& spec : specs) {
    auto linear =
        builder.make<EmbeddingLayer>({.prefix = spec.prefix + ".linear", .in = spec.in, .out = spec.out, .bias = spec.bias});
    layers_.push_back({std::move(linear), spec.is_tanh});
  }
}

void EmbeddingLayers::apply(const platform::Context& ctx, std::vector<float>& values) const {
  for (const auto& layer : layers_) {
    const platform::StepMark mark(ctx);
    const auto x = ctx.make_matrix(1, layer.linear->in_features()), y = ctx.make_matrix(1, layer.linear->out_features());
    {
      const platform::HostView<float> in(ctx, x, platform::Access::kWrite);
      std::copy(values.begin(), values.end(), (*in).row_span(0).begin());
    }
    layer.linear->forward(ctx, x, y);
    const auto out = platform::host_copy(ctx, y).row_span(0);
    values.assign(out.begin(), out.end());
    if (layer.is_tanh) std::transform(values.begin(), values.end(), values.begin(), [](float v) { return std::tanh(v); });
  }
}

}  // namespace choral::layers
