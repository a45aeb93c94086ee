// The MLP of a decoder layer: h += down_proj(act(gate_proj(x))·up_proj(x)). A PluggableLayer, as SelfAttention.
#pragma once

#include <memory>
#include <string>

#include "layers/graph.h"

namespace choral::layers {

class GatedMlp {
 public:
  static constexpr std::string_view kLayerName = "gated_mlp";
  struct Spec {
    std::string prefix;
    int64_t hidden = 0;
    int64_t intermediate = 0;
    std::string hidden_act;
    bool bias = false;
  };
  GatedMlp(Builder& builder, const Spec& spec);
  virtual ~GatedMlp() = default;

  struct Scratch {
    Value gate_up, gated;
  };
  static Scratch make_scratch(Graph& graph, const Spec& spec) {
    return {.gate_up = graph.matrix(2 * spec.intermediate), .gated = graph.matrix(spec.intermediate)};
  }
  // Writes h += block(x) into the graph.
  virtual void describe(Graph& graph, const Scratch& scratch, Value x, Value h) const;

 private:
  std::unique_ptr<MergedColumnParallelLinear> gate_up_proj_;
  std::unique_ptr<GatedActivation> act_;
  std::unique_ptr<RowParallelLinear> down_proj_;
};

}  // namespace choral::layers
