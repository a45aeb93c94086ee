#include "layers/gated_mlp.h"

#include "kernels/gemm/packed_matrix.h"

namespace choral::layers {
namespace {

std::vector<int64_t> begins_of(const Builder& builder, int64_t intermediate) {
  if (builder.ranks.count == 1 || intermediate < kernels::kPanelRows * builder.ranks.count) return {};
  constexpr int64_t kUnit = 128;  // where there are enough of them: some schemes have a scale for so many rows
  const bool fine = intermediate < 8 * kUnit * builder.ranks.count;
  return share_begins(intermediate, fine ? kernels::kPanelRows : kUnit, builder.ranks.count);
}

}  // namespace

GatedMlp::GatedMlp(Builder& builder, const Spec& spec)
    : begins_(begins_of(builder, spec.intermediate)),
      own_(begins_.empty() ? Share{0, spec.intermediate} : share_of(begins_, builder.ranks.rank)),
      gate_up_proj_(builder.make<MergedColumnParallelLinear>(
          {.prefix = spec.prefix + (spec.linears ? ".input_linear" : ".gate_up_proj"),
           .in = spec.hidden,
           .members = {"gate_proj", "up_proj"},
           .out = {spec.intermediate, spec.intermediate},
           .bias = spec.bias,
           .merged = spec.linears || spec.merged_gate_up,
           .own =
               begins_.empty() ? std::vector<Share>() : std::vector{own_, Share{spec.intermediate + own_.begin, own_.count}}})),
      act_(builder.make<GatedActivation>({.hidden_act = spec.hidden_act})),
      down_proj_(builder.make<RowParallelLinear>({.prefix = spec.prefix + (spec.linears ? ".output_linear" : ".down_proj"),
                                                  .in = spec.intermediate,
                                                  .out = spec.hidden,
                                                  .bias = spec.bias})) {}

void GatedMlp::describe(Graph& graph, Value x, const Output& out) const {
  const Value gate_up = graph.matrix(gate_up_proj_->out_features()), gated = graph.matrix(down_proj_->in_features());
  graph.add(LinearStep{gate_up_proj_.get(), x, gate_up, false});
  graph.add(ActivationStep{act_.get(), gate_up, gated.columns(own_.begin, own_.count)});
  if (!begins_.empty()) graph.add(GatherStep{gated, &begins_});
  graph.add(LinearStep{down_proj_.get(), gated, out.y, out.add});
}

}  // namespace choral::layers
