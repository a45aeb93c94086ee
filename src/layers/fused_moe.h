// A mixture of experts, where a decoder layer may have its MLP: a router gives each token top_k experts with weights, an expert
// is a gated MLP, and
//   y = Σ_s weight_s · down_proj(act(gate_proj(x))·up_proj(x)) of the token's expert s, in order of s (+ the shared expert's).
// Rows are sorted by expert, so that an expert's matrices are read once a step; adapters act on an expert's rows as on a linear
// layer's; the products of all experts are one (the operator grouped_matmul). CustomOp "fused_moe": its native form multiplies
// expert by expert. A PluggableLayer, as GatedMlp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/fused/expert_rows.h"
#include "kernels/fused/moe_gating.h"
#include "layers/gated_mlp.h"
#include "layers/graph.h"

namespace choral::layers {

// Logits of the experts, and what is added to their scores where they are chosen (not where they are weighted).
class MoeRouter : public ReplicatedLinear {
 public:
  static constexpr std::string_view kLayerName = "moe_router";
  struct Spec {
    std::string prefix;
    int64_t hidden = 0;
    int64_t experts = 0;
    bool selection_bias = false;  // the checkpoint has e_score_correction_bias
    bool bias = false;            // of the logits
  };
  MoeRouter(Builder& builder, const Spec& spec);

  Status load_weights(quant::WeightSource& source) override;
  std::span<const float> selection_bias() const { return selection_bias_; }

 private:
  std::vector<float> selection_bias_;
};

class FusedMoE : public Block, public PluggedBlock, public platform::CustomOp {
 public:
  static constexpr std::string_view kLayerName = "fused_moe";
  // What its matrices are called.
  struct ExpertNames {
    std::string router = "gate", gate = "gate_proj", up = "up_proj", down = "down_proj";
  };
  struct Spec {
    std::string prefix;  // has the router and "experts.N"
    ExpertNames names = {};
    int64_t hidden = 0;
    int64_t intermediate = 0;  // of one expert
    int64_t experts = 0;
    int64_t shared_intermediate = 0;  // of the expert that every token meets, "shared_experts"; 0: none
    std::string hidden_act;
    kernels::MoeGating gating = {};  // without its selection bias,
    bool selection_bias = false;     // which the checkpoint has
    bool bias = false;               // of the router and of the experts' matrices
    // gate and up are one matrix, "gate_up_proj", whose rows are theirs in turns; in the place of hidden_act
    std::optional<kernels::ClampedSwiglu> swiglu = {};
  };
  FusedMoE(Builder& builder, const Spec& spec);

  void describe(Graph& graph, Value x, const Output& out) const override;
  void forward(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x, bool add,
               MatrixView<float> y) const override;

 private:
  struct Expert {
    std::unique_ptr<MergedColumnParallelLinear> gate_up_proj;
    std::unique_ptr<RowParallelLinear> down_proj;
  };
  // Who goes where, and with what weight. weights [tokens, top_k]
  kernels::ExpertRows route(const platform::Context& ctx, MatrixView<const float> logits, MatrixView<float> weights) const;

  kernels::MoeGating gating_;
  int64_t hidden_, intermediate_;
  std::unique_ptr<MoeRouter> router_;
  std::vector<Expert> experts_;
  std::unique_ptr<GatedActivation> act_;
  std::unique_ptr<GatedMlp> shared_experts_;  // null: none
  const platform::OpOf<platform::ops::MoeGating>& choose_;
  const platform::OpOf<platform::ops::GroupedMatmul>& grouped_matmul_;
  const platform::OpOf<platform::ops::MoeCombine>& combine_;
};

}  // namespace choral::layers
