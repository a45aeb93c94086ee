#include "layers/gated_mlp.h"

namespace choral::layers {

GatedMlp::GatedMlp(Builder& builder, const Spec& spec)
    : gate_up_proj_(
          builder.make<MergedColumnParallelLinear>({.prefix = spec.prefix + (spec.linears ? ".input_linear" : ".gate_up_proj"),
                                                    .in = spec.hidden,
                                                    .members = {"gate_proj", "up_proj"},
                                                    .out = {spec.intermediate, spec.intermediate},
                                                    .bias = spec.bias,
                                                    .merged = spec.linears || spec.merged_gate_up})),
      act_(builder.make<GatedActivation>({.hidden_act = spec.hidden_act})),
      down_proj_(builder.make<RowParallelLinear>({.prefix = spec.prefix + (spec.linears ? ".output_linear" : ".down_proj"),
                                                  .in = spec.intermediate,
                                                  .out = spec.hidden,
                                                  .bias = spec.bias})) {}

void GatedMlp::describe(Graph& graph, Value x, const Output& out) const {
  const Value gate_up = graph.matrix(gate_up_proj_->out_features()), gated = graph.matrix(down_proj_->in_features());
  graph.add(LinearStep{gate_up_proj_.get(), x, gate_up, false});
  graph.add(ActivationStep{act_.get(), gate_up, gated});
  graph.add(LinearStep{down_proj_.get(), gated, out.y, out.add});
}

}  // namespace choral::layers
