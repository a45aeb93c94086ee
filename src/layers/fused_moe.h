// A mixture of experts, where a decoder layer may have its MLP: a router gives each token top_k experts with weights, an expert
// is a gated MLP, and
//   y = Σ_s weight_s · down_proj(act(gate_proj(x))·up_proj(x)) of the token's expert s, in order of s (+ the shared expert's,
// in full or by a gate of its own).
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
    std::string selection_bias = {};  // what the checkpoint calls it; empty: it has none
    bool selection_bias_row = false;  // and whether as a matrix of one row
    bool bias = false;                // of the logits
    std::string name_in_5 = {};       // see LoRATarget
    std::string expert_scale = {};    // a tensor by whose values the weights are multiplied; empty: none
  };
  MoeRouter(Builder& builder, const Spec& spec);

  Status load_weights(quant::WeightSource& source) override;
  std::span<const float> selection_bias() const { return selection_bias_; }
  std::span<const float> expert_scale() const { return expert_scale_; }

 private:
  std::string scale_tensor_;
  std::vector<float> selection_bias_;
  std::string selection_bias_name_;
  bool selection_bias_row_;
  std::vector<float> expert_scale_;
};

// What the shared expert is worth to a token, where the checkpoint has a matrix of one row for it: y += sigmoid(w·x)·from. It
// runs by the operators of a router with one expert.
class SharedExpertGate : public RowGate {
 public:
  static constexpr std::string_view kLayerName = "shared_expert_gate";
  struct Spec {
    std::string prefix;
    int64_t hidden = 0;
  };
  SharedExpertGate(Builder& builder, const Spec& spec);

  void add(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x, MatrixView<const float> from,
           MatrixView<float> y) const override;

 private:
  std::unique_ptr<MoeRouter> gate_;
};

class FusedMoE : public Block, public PluggedBlock, public platform::CustomOp {
 public:
  static constexpr std::string_view kLayerName = "fused_moe";
  // What its matrices are called.
  struct ExpertNames {
    std::string router = "gate", gate = "gate_proj", up = "up_proj", down = "down_proj", shared = "shared_experts";
    // Of the router, within the block; empty: "e_score_correction_bias" of the router itself.
    std::string selection_bias = {};
    bool selection_bias_row = false;  // it is stored as a matrix of one row
    std::string router_in_5 = {};     // what transformers 5 calls the router; empty: as the checkpoint does
  };
  struct Spec {
    std::string prefix;  // has the router and "experts.N"
    ExpertNames names = {};
    int64_t hidden = 0;
    int64_t intermediate = 0;  // of one expert
    int64_t experts = 0;
    int64_t shared_intermediate = 0;  // of the expert that every token meets; 0: none
    std::string shared_prefix = {};   // where that stands; empty: as names.shared says, in the block
    bool shared_linears = false;      // see GatedMlp's linears
    bool shared_gate = false;         // which counts by a sigmoid of its own: the checkpoint has "shared_expert_gate"
    std::string hidden_act;
    kernels::MoeGating gating = {};  // without its selection bias,
    bool selection_bias = false;     // which the checkpoint has
    bool bias = false;               // of the router and of the experts' matrices
    bool weigh_input = false;        // a token's weight for an expert multiplies what that reads, not what it gives
    bool merged_gate_up = false;     // the checkpoint has one matrix of an expert's gate and up, "gate_up_proj"
    // x has two rows a token, side by side: the experts', then the router's.
    bool own_router_row = false;
    std::string expert_scale = {};  // see MoeRouter
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
  static std::unique_ptr<GatedMlp> make_shared_experts(Builder& builder, const Spec& spec);
  // The experts' rows of x, in their order; times their weights where these act on the input, which are 1 from then on.
  MatrixView<float> gather(const platform::Context& ctx, MatrixView<const float> x, const kernels::ExpertRows& rows,
                           MatrixView<const float>& weights) const;
  // Who goes where, and with what weight. weights [tokens, top_k]
  kernels::ExpertRows route(const platform::Context& ctx, MatrixView<const float> logits, MatrixView<float> weights) const;

  kernels::MoeGating gating_;
  int64_t hidden_, intermediate_;
  bool weigh_input_;
  bool own_router_row_;
  std::unique_ptr<MoeRouter> router_;
  std::vector<Expert> experts_;
  std::unique_ptr<GatedActivation> act_;
  std::unique_ptr<GatedMlp> shared_experts_;       // null: none
  std::unique_ptr<SharedExpertGate> shared_gate_;  // null: they count in full
  const platform::OpOf<platform::ops::MoeGating>& choose_;
  const platform::OpOf<platform::ops::GroupedMatmul>& grouped_matmul_;
  const platform::OpOf<platform::ops::MoeCombine>& combine_;
};

}  // namespace choral::layers
