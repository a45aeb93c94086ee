// A Mamba-2 layer (Granite 4): in the place of attention a state of fixed size, which each token decays, adds to and reads
// (kernels/recurrent/selective_scan.h).
//   [z | xBC | dt] = in_proj(x);   x, B, C = silu(conv1d(xBC)) along the sequence
//   y = out_proj(norm(scan(x, B, C, dt) · silu(z))), normed in as many parts as there are groups
// The state and the convolution's last rows are kept in slots of the state cache, in float32. A rank of a divided model has those
// of its own heads, with the B and C of their groups. A PluggableLayer, as SelfAttention.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "layers/graph.h"
#include "layers/state_vectors.h"

namespace choral::layers {

class Mamba2 : public StateBlock, public PluggedBlock {
 public:
  static constexpr std::string_view kLayerName = "mamba2";
  struct Spec {
    std::string prefix;
    int64_t hidden = 0;
    int64_t groups = 0, heads = 0;  // the latter a multiple of the former
    int64_t head_dim = 0, state_dim = 0;
    int64_t conv_taps = 0;
    bool conv_bias = false;
    bool proj_bias = false;  // of in_proj and out_proj
    float least_step = 0, most_step = std::numeric_limits<float>::infinity();
    float rms_norm_eps = 1e-6F;
  };
  Mamba2(Builder& builder, const Spec& spec) : Mamba2(builder, spec, own_heads(builder, spec)) {}

  void describe(Graph& graph, Value x, const Output& out) const override { graph.add(PluggedStep{this, x, out.y, out.add}); }
  void forward(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x, bool add,
               MatrixView<float> y) const override;

  StateShape state_shape() const override;
  void bind_state(const kernels::StateView& slots) override { slots_ = slots; }

 private:
  static HeadShare own_heads(const Builder& builder, const Spec& spec);
  static ColumnParallelLinear::Spec in_spec(const Spec& spec, const HeadShare& own);
  Mamba2(Builder& builder, const Spec& spec, const HeadShare& own);

  kernels::SelectiveScan scan_;  // of the own heads, without its vectors, which vectors_ has
  int64_t groups_;               // of all ranks: what is normed by itself
  int64_t value_begin_;          // where the own columns begin in out_proj's x,
  std::vector<int64_t> begins_;  // and each rank's; empty: all are here
  std::unique_ptr<ColumnParallelLinear> in_proj_;
  std::unique_ptr<StateVectors> vectors_;
  std::unique_ptr<RMSNorm> norm_;
  std::unique_ptr<RowParallelLinear> out_proj_;
  kernels::StateView slots_;
};

}  // namespace choral::layers
