#include "layers/gated_mlp.h"

#include "kernels/gemm/packed_matrix.h"

namespace choral::layers {
namespace {

MergedColumnParallelLinear::Spec gate_up_spec(const GatedMlp::Spec& spec, std::vector<Share> own) {
  return {.prefix = spec.prefix + (spec.linears ? ".input_linear" : ".gate_up_proj"),
          .in = spec.hidden,
          .members = {"gate_proj", "up_proj"},
          .out = {spec.intermediate, spec.intermediate},
          .bias = spec.bias,
          .merged = spec.linears || spec.merged_gate_up,
          .own = std::move(own)};
}

// A rank's columns of gate and of up.
std::vector<Share> own_outputs(const std::vector<int64_t>& begins, int rank, int64_t intermediate) {
  if (begins.empty()) return {};
  const Share own = share_of(begins, rank);
  return {own, {intermediate + own.begin, own.count}};
}

// In whole panels, or in blocks of as many rows as schemes have scales for; not at all where that leaves a rank without any.
std::vector<int64_t> begins_of(const Builder& builder, const GatedMlp::Spec& spec) {
  if (builder.ranks.count == 1) return {};
  for (const int64_t unit : {kernels::kPanelRows, int64_t{128}}) {
    auto begins = share_begins(spec.intermediate, unit, builder.ranks.count);
    const auto may_own = [&](int rank) {
      return share_of(begins, rank).count > 0 &&
             MergedColumnParallelLinear::may_own(builder, gate_up_spec(spec, own_outputs(begins, rank, spec.intermediate)));
    };
    int rank = 0;
    while (rank < builder.ranks.count && may_own(rank)) ++rank;
    if (rank == builder.ranks.count) return begins;
  }
  return {};
}

}  // namespace

GatedMlp::GatedMlp(Builder& builder, const Spec& spec)
    : begins_(begins_of(builder, spec)),
      own_(begins_.empty() ? Share{0, spec.intermediate} : share_of(begins_, builder.ranks.rank)),
      gate_up_proj_(builder.make<MergedColumnParallelLinear>(
          gate_up_spec(spec, own_outputs(begins_, builder.ranks.rank, spec.intermediate)))),
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
