// A gated delta net (Qwen3-Next, Qwen3.5): in the place of attention a state of fixed size, which each token decays, corrects and
// reads (kernels/recurrent/gated_delta_rule.h).
//   [q | k | v | z] = in_proj(x), [b | a] = in_proj_ba(x);   q, k, v = silu(conv1d(q, k, v)) along the sequence
//   y = out_proj(norm(delta rule(q, k, v, b, a)) · silu(z)), head by head
// The state and the convolution's last rows are kept in slots of the state cache, in float32. A rank of a divided model has those
// of its own heads. A PluggableLayer, as SelfAttention.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/graph.h"
#include "layers/state_vectors.h"

namespace choral::layers {

class GatedDeltaNet : public StateBlock, public PluggedBlock {
 public:
  static constexpr std::string_view kLayerName = "gated_delta_net";
  struct Spec {
    std::string prefix;
    int64_t hidden = 0;
    int64_t key_heads = 0, value_heads = 0;  // the latter a multiple of the former
    int64_t key_dim = 0, value_dim = 0;
    int64_t conv_taps = 0;
    float rms_norm_eps = 1e-6F;
    // The checkpoint has in_proj_qkvz, which gives for each key head q, k and its value heads' v and z, and in_proj_ba alike;
    // else in_proj_qkv, in_proj_z, in_proj_b and in_proj_a, each of all heads.
    bool heads_in_turns = false;
    // out_proj's columns are in tiles: of the value heads of all key heads the first ones, then the second ones. Rows of the
    // other projections are not; adapters' columns neither.
    bool out_proj_tiled = false;
  };
  GatedDeltaNet(Builder& builder, const Spec& spec) : GatedDeltaNet(builder, spec, own_heads(builder, spec)) {}

  void describe(Graph& graph, Value x, const Output& out) const override { graph.add(PluggedStep{this, x, out.y, out.add}); }
  void forward(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x, bool add,
               MatrixView<float> y) const override;

  StateShape state_shape() const override { return shape_; }
  void bind_state(const kernels::StateView& slots) override { slots_ = slots; }

  // A projection whose outputs may come in turns, and the order in which they are used.
  struct Projection {
    std::unique_ptr<LinearBase> linear;
    std::optional<ColumnOrder> order;

    MatrixView<float> forward(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x) const;
  };

 private:
  // Value heads, whose groups are key heads.
  static HeadShare own_heads(const Builder& builder, const Spec& spec);
  GatedDeltaNet(Builder& builder, const Spec& spec, const HeadShare& own);
  void tile_out_proj(Builder& builder, const Spec& spec);
  kernels::DeltaRule rule() const;

  int64_t key_heads_;  // the own ones
  StateShape shape_;
  int64_t value_begin_;          // where the own columns begin in what is out_proj's x but for tiles,
  std::vector<int64_t> begins_;  // and each rank's; empty: all are here
  Projection qkvz_, ba_;
  std::unique_ptr<StateVectors> vectors_;
  std::unique_ptr<RMSNorm> norm_;  // of each value head
  std::unique_ptr<RowParallelLinear> out_proj_;
  std::optional<ColumnOrder> tiles_;  // of out_proj's x; none: as the heads are
  kernels::StateView slots_;
};

}  // namespace choral::layers
