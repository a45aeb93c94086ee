// The MLP of a decoder layer: down_proj(act(gate_proj(x))·up_proj(x)). A PluggableLayer, as SelfAttention.
#pragma once

#include <memory>
#include <string>

#include "layers/graph.h"

namespace choral::layers {

class GatedMlp : public Block {
 public:
  static constexpr std::string_view kLayerName = "gated_mlp";
  struct Spec {
    std::string prefix;
    int64_t hidden = 0;
    int64_t intermediate = 0;
    std::string hidden_act;
    bool bias = false;
    bool merged_gate_up = false;  // the checkpoint has one matrix, gate_up_proj
    bool linears = false;         // its matrices are "input_linear", gate and up as one, and "output_linear"
  };
  GatedMlp(Builder& builder, const Spec& spec);

  void describe(Graph& graph, Value x, const Output& out) const override;

 private:
  std::vector<int64_t> begins_;  // of each rank's columns between the two products; empty: all are here
  Share own_;
  std::unique_ptr<MergedColumnParallelLinear> gate_up_proj_;
  std::unique_ptr<GatedActivation> act_;
  std::unique_ptr<RowParallelLinear> down_proj_;
};

}  // namespace choral::layers
