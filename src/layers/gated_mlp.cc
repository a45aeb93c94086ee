#include "layers/gated_mlp.h"

namespace choral::layers {

GatedMlp::GatedMlp(Builder& builder, const Spec& spec)
    : gate_up_proj_(builder.make<MergedColumnParallelLinear>({.prefix = spec.prefix + ".gate_up_proj",
                                                              .in = spec.hidden,
                                                              .members = {"gate_proj", "up_proj"},
                                                              .out = {spec.intermediate, spec.intermediate},
                                                              .bias = spec.bias})),
      act_(builder.make<GatedActivation>({.hidden_act = spec.hidden_act})),
      down_proj_(builder.make<RowParallelLinear>(
          {.prefix = spec.prefix + ".down_proj", .in = spec.intermediate, .out = spec.hidden, .bias = spec.bias})) {}

void GatedMlp::describe(Graph& graph, const Scratch& scratch, Value x, Value h) const {
  graph.add(LinearStep{gate_up_proj_.get(), x, scratch.gate_up, false});
  graph.add(ActivationStep{act_.get(), scratch.gate_up, scratch.gated});
  graph.add(LinearStep{down_proj_.get(), scratch.gated, h, true});
}

}  // namespace choral::layers
