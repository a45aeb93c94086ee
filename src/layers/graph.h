// A model's forward pass as a list of steps over matrices, written down once when the model is built and run every step. Written
// down, so that the fusion pass (fusion.h) can replace what stands side by side by an operator that does both, without models
// knowing, and so that a matrix takes memory only between the steps that touch it. A step calls a layer; the list owns nothing
// but the order.
#pragma once

#include <span>
#include <variant>
#include <vector>

#include "layers/activation.h"
#include "layers/attention.h"
#include "layers/column_order.h"
#include "layers/linear.h"
#include "layers/rms_norm.h"
#include "layers/rotary_embedding.h"

namespace choral::layers {

// Columns of a matrix of the step; [tokens, cols]. Matrix 0 is the residual stream, which the caller brings.
struct Value {
  int matrix = 0;
  int64_t begin = 0;
  int64_t cols = 0;

  Value columns(int64_t first, int64_t count) const { return {matrix, begin + first, count}; }
  bool operator==(const Value&) const = default;
};

// What a step does to matrices: the values whose former content it uses, and those it changes. What it changes without reading
// gets a new content as a whole. Every kind of step says its own; the passes know no other source.
struct Access {
  std::vector<Value> reads, writes;
};

// Where a block puts what it computes: y = f(x), or y += f(x).
struct Output {
  Value y;
  bool add;
};

struct NormStep {  // y = norm(x)
  const RMSNorm* norm;
  Value x, y;
  Access access() const { return {{x}, {y}}; }
};
struct HeadsNormStep {  // x = norm of each head of x
  const RMSNorm* norm;
  Value x;
  Access access() const { return {{x}, {x}}; }
};
struct PartsNormStep {  // x = norm of each of so many equal parts of x by itself, by its own part of the weight
  const RMSNorm* norm;
  Value x;
  int64_t parts;
  Access access() const { return {{x}, {x}}; }
};
struct RotaryStep {
  const RotaryEmbedding* rotary;
  Value q, k;
  Access access() const { return {{q, k}, {q, k}}; }
};
struct WriteKvStep {  // into the cache, which is no matrix of the step
  const Attention* attention;
  Value k, v;
  Access access() const { return {{k, v}, {}}; }
};
struct AttendStep {
  const Attention* attention;
  Value q, out;
  Access access() const { return {{q}, {out}}; }
};
struct LinearStep {  // y = or += x·Wᵀ + b, with the adapters' share
  const LinearBase* linear;
  Value x, y;
  bool add;
  Access access() const { return add ? Access{{x, y}, {y}} : Access{{x}, {y}}; }
};
struct ActivationStep {
  const GatedActivation* activation;
  Value x, y;
  Access access() const { return {{x}, {y}}; }
};
struct ReorderStep {  // y = x's columns in another order, or some of them; x and y are whole matrices
  const ColumnOrder* order;
  Value x, y;
  Access access() const { return {{x}, {y}}; }
};
struct GateStep {  // y = act(gate)·y; a gate one column wide is that of the whole row
  kernels::Activation act;
  Value gate, y;
  Access access() const { return {{gate, y}, {y}}; }
};
struct AddStep {  // y += x
  Value x, y;
  Access access() const { return {{x, y}, {y}}; }
};
struct ScaleStep {  // x = factor·x
  Value x;
  float factor;
  Access access() const { return {{x}, {x}}; }
};
struct ScaleByPositionStep {  // each row of x = its position's factor · x
  kernels::PositionScale scale;
  Value x;
  Access access() const { return {{x}, {x}}; }
};
struct SubtractMeanStep {  // y = x - mean(x), row by row, or of each of so many equal parts of a row
  Value x, y;
  int64_t parts = 1;
  Access access() const { return {{x}, {y}}; }
};
// What a plugged-in class does in a way of its own: y = or += f(x).
class PluggedBlock {
 public:
  virtual ~PluggedBlock() = default;
  virtual void forward(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x, bool add,
                       MatrixView<float> y) const = 0;
};
struct PluggedStep {
  const PluggedBlock* block;
  Value x, y;
  bool add = true;
  Access access() const { return add ? Access{{x, y}, {y}} : Access{{x}, {y}}; }
};
// A factor of each row.
class RowGate {
 public:
  virtual ~RowGate() = default;
  // y += factor(x)·from
  virtual void add(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x,
                   MatrixView<const float> from, MatrixView<float> y) const = 0;
};
struct GatedAddStep {  // y += gate(x)·from
  const RowGate* gate;
  Value x, from, y;
  Access access() const { return {{x, from, y}, {y}}; }
};
// Of a divided model: columns of y, of which each rank has its own, from the others (Collective::gather_columns).
struct GatherStep {
  Value y;
  const std::vector<int64_t>* begins;  // of the layer's, which outlives the graph
  Access access() const { return {{y}, {y}}; }
};
// The fused ones; only fusion.cc makes them.
struct AddNormStep {  // residual += x; y = norm(residual)
  const RMSNorm* norm;
  Value x, residual, y;
  Access access() const { return {{x, residual}, {residual, y}}; }
};
struct QkNormRotaryStep {
  const RMSNorm *q_norm, *k_norm;
  const RotaryEmbedding* rotary;
  Value q, k;
  Access access() const { return {{q, k}, {q, k}}; }
};
struct RotaryWriteKvStep {
  const RotaryEmbedding* rotary;
  const Attention* attention;
  Value q, k, v;
  Access access() const { return {{q, k, v}, {q, k}}; }
};

// y (+)= norm(x)·Wᵀ + b with the norm quantised on the way; `normed` is filled for adapters only.
struct NormLinearStep {
  const RMSNorm* norm;
  const LinearBase* linear;
  Value x, normed, y;
  bool add;
  Access access() const { return add ? Access{{x, y}, {normed, y}} : Access{{x}, {normed, y}}; }
};
struct ActivationLinearStep {  // the same of an activation
  const GatedActivation* activation;
  const LinearBase* linear;
  Value x, gated, y;
  bool add;
  Access access() const { return add ? Access{{x, y}, {gated, y}} : Access{{x}, {gated, y}}; }
};

using Step =
    std::variant<NormStep, HeadsNormStep, PartsNormStep, RotaryStep, WriteKvStep, AttendStep, LinearStep, ActivationStep,
                 ReorderStep, GateStep, AddStep, ScaleStep, ScaleByPositionStep, SubtractMeanStep, PluggedStep, GatedAddStep,
                 GatherStep, AddNormStep, QkNormRotaryStep, RotaryWriteKvStep, NormLinearStep, ActivationLinearStep>;

Access access_of(const Step& step);

class Graph {
 public:
  explicit Graph(int64_t hidden) : matrices_{{hidden, kNoPlace}} {}

  Value residual() const { return {0, 0, matrices_[0].cols}; }
  // A matrix of the step, `cols` wide. Its memory is another's before the first step that touches it and after the last.
  Value matrix(int64_t cols) {
    matrices_.push_back({cols, kNoPlace});
    return {static_cast<int>(matrices_.size()) - 1, 0, cols};
  }
  void add(Step step) {
    steps_.push_back(std::move(step));
    placed_ = false;
  }

  std::span<const Step> steps() const { return steps_; }
  void replace(std::vector<Step> steps) {
    steps_ = std::move(steps);
    placed_ = false;
  }

  // Holds every step's matrices to the shape rules of its operators, without data. A step that does not fit is our bug: the
  // error names it by its place.
  Status check_shapes(const platform::OpTable& ops) const;

  // Gives matrices their places in the step's memory; run() needs it, once the steps are final. Matrices that no step needs at
  // the same time share a place.
  void place();
  // How many floats the places take for each token.
  int64_t floats_per_token() const;

  // Runs the list on the rows of `residual` [tokens, hidden].
  void run(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<float> residual) const;

 private:
  static constexpr int kNoPlace = -1;  // no step touches it, or it is the caller's
  struct Matrix {
    int64_t cols;
    int place;
  };

  std::vector<Matrix> matrices_;
  std::vector<int64_t> places_;  // floats of each for a token
  std::vector<Step> steps_;
  bool placed_ = false;
};

// A part of a decoder layer that is a function of the step's rows.
class Block {
 public:
  virtual ~Block() = default;
  // Writes out = block(x) into the graph.
  virtual void describe(Graph& graph, Value x, const Output& out) const = 0;
};

// One that keeps a share of the KV cache.
class AttentionBlock : public Block {
 public:
  virtual KvShape kv_shape() const = 0;
  virtual void bind_kv_cache(const KvBinding& binding) = 0;
};

// What a layer keeps of a sequence however long it is: of `tail_rows` tokens the `channels` that its convolution sees, and a
// matrix [key_dim, value_dim] for each head. Floats.
struct StateShape {
  int64_t tail_rows = 0, channels = 0;
  int64_t heads = 0, key_dim = 0, value_dim = 0;

  int64_t tail_floats() const { return tail_rows * channels; }
  int64_t floats() const { return tail_floats() + heads * key_dim * value_dim; }
};

// A block that keeps one. Slots are given before the first step; which one a row goes through the step says
// (ForwardBatch::state_runs).
class StateBlock : public Block {
 public:
  virtual StateShape state_shape() const = 0;
  virtual void bind_state(const kernels::StateView& slots) = 0;
};

}  // namespace choral::layers
