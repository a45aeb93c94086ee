// The linear family: y = x·Wᵀ + b, spelled as the field knows it. The layer owns shapes and shard names; its quant_method owns
// weights and arithmetic. Where ranks divide a model, each has some rows of W, whatever the field's names say of inputs: a sum
// is never divided. A layer whose spec says which outputs are a rank's own gives these alone; another one shares its rows out
// by itself, and y is gathered; replicated and small ones are whole on every rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/module.h"
#include "layers/rank_share.h"
#include "lora/plan/punica_wrapper.h"

namespace choral::layers {

class LinearBase : public Module {
 public:
  // `lora` is the step's plan: rows of adapters get their share, in the product's epilogue. Null: the base alone.
  virtual void forward(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
                       const lora::PunicaWrapper* lora = nullptr) const {
    apply(ctx, {x, {}}, {}, y, lora);
  }
  // y += x·Wᵀ + b: the residual stream.
  virtual void forward_add(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
                           const lora::PunicaWrapper* lora = nullptr) const {
    apply(ctx, {x, {}}, {.accumulate = true}, y, lora);
  }

  // y (+)= x·Wᵀ + b of rows that come quantised too, as quantised_input() wants them. `x` is read for adapters only: without
  // `lora` it may hold anything.
  void forward_quantised(const platform::Context& ctx, MatrixView<const float> x, const kernels::QuantisedRows& quantised,
                         bool add, MatrixView<float> y, const lora::PunicaWrapper* lora) const {
    apply(ctx, {x, quantised}, {.accumulate = add}, y, lora);
  }
  // y = x·Wᵀ + b of rows that were gathered from the step's; `groups` are the adapters' (PunicaWrapper::row_groups).
  virtual void forward_rows(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
                            const lora::PunicaWrapper* lora, std::span<const lora::RowGroup> groups) const;
  // Whether the quant method's products are all that forward_rows() does. False of a class with a forward_rows of its own.
  virtual bool may_group() const { return true; }
  // forward_rows() of several layers at once: each has its rows of x and y, ascending. `matmul` runs the products, unless one of
  // the layers may not.
  struct Rows {
    const LinearBase* layer = nullptr;
    int64_t begin = 0, count = 0;
    std::span<const lora::RowGroup> groups = {};
  };
  static void forward_grouped(const platform::Context& ctx, const platform::OpOf<platform::ops::GroupedMatmul>& matmul,
                              std::span<const Rows> layers, MatrixView<const float> x, MatrixView<float> y,
                              const lora::PunicaWrapper* lora);
  // None as long as no weights are packed.
  std::optional<kernels::RowForm> quantised_input(CpuLevel level) const { return quant_method_->quantised_input(level); }

  int64_t in_features() const { return shape_.in; }
  // Columns of y.
  int64_t out_features() const { return gathers() ? begins_.back() : shape_.out_total(); }
  const quant::LinearMethod& quant_method() const { return *quant_method_; }
  // What this rank computes of y, and the rest of y from the others.
  MatrixView<float> own_columns(MatrixView<float> y) const {
    return gathers() ? y.sub_cols(held_.front().of, held_.front().count) : y;
  }
  void gather(const platform::Context& ctx, MatrixView<float> y) const;
  std::span<const lora::HeldColumns> held() const { return held_; }
  // This layer as adapters see it, called `name`; its weights are read through the layer, which must outlive the target.
  lora::LoRATarget lora_target(lora::TargetKind kind, std::string name) const;

  Status load_weights(quant::WeightSource& source) override;
  Status process_weights_after_loading(const platform::Context& ctx, quant::WeightSource& source) override;
  std::string prefix() const override { return prefix_; }
  int64_t expected_bytes(const quant::WeightRequest& request) const override {
    return quant_method_->expected_bytes(request, shape_, parameters_);
  }
  int64_t weight_bytes() const override { return quant_method_->size_bytes(); }
  // Of all ranks.
  int64_t parameters() const override { return (shape_.in + (shape_.bias ? 1 : 0)) * outputs_; }
  std::optional<ProductForm> product_form(CpuLevel level) const override {
    return ProductForm{quant_method_->scheme(), quant_method_->kernel_name(level), quant_method_->why()};
  }
  std::string format() const override { return quant_method_->format(); }
  std::string kernel_name(CpuLevel level) const override { return quant_method_->kernel_name(level); }

 protected:
  // How ranks have it. `own`: this rank's outputs, which are all that it gives; empty: it shares them out by itself, and gathers.
  enum class Division { kByRows, kNone };
  LinearBase(Builder& builder, quant::LayerKind kind, std::string prefix, const quant::LinearShape& shape, Division division,
             const std::vector<Share>& own = {});

  // Of a layer that is gathered: where each rank's outputs begin, and where they end; empty: it is whole, or not gathered.
  const std::vector<int64_t>& begins() const { return begins_; }

  // Whether a rank may have these outputs alone: not where rows at a border share a word or a scale.
  static bool may_own(const Builder& builder, const quant::LinearShape& shape, const std::vector<Share>& own);

 private:
  bool gathers() const { return !begins_.empty(); }
  std::vector<int64_t> share_out(const Ranks& ranks) const;
  struct Input {
    MatrixView<const float> x;
    kernels::QuantisedRows quantised;  // empty: x as it is
  };
  void count_product(platform::OpProfile& profile, int64_t rows) const;
  void apply(const platform::Context& ctx, const Input& input, const kernels::Epilogue& epilogue, MatrixView<float> y,
             const lora::PunicaWrapper* lora) const;
  static void multiply_grouped(const platform::Context& ctx, const platform::OpOf<platform::ops::GroupedMatmul>& matmul,
                               std::span<const Rows> layers, MatrixView<const float> x, const kernels::Epilogue& epilogue,
                               MatrixView<float> y);

  std::string prefix_;
  quant::LinearShape shape_;  // of what is held
  int64_t outputs_;           // of all ranks
  std::vector<lora::TargetMember> members_;
  std::vector<lora::HeldColumns> held_;  // empty: all
  std::vector<int64_t> begins_;
  int lora_target_ = -1;  // of a plain linear layer
  std::unique_ptr<quant::LinearMethod> quant_method_;
  quant::ParameterSet parameters_;
};

// Plain projections. They are PluggableLayers, like every class below: a class that stands in for one derives from it.
struct LinearSpec {
  std::string prefix;
  int64_t in = 0;
  int64_t out = 0;
  bool bias = false;
  std::vector<Share> own = {};  // of the outputs, those that this rank gives; empty: y has all
};

class ReplicatedLinear : public LinearBase {
 public:
  static constexpr std::string_view kLayerName = "replicated_linear";
  using Spec = LinearSpec;
  ReplicatedLinear(Builder& builder, const Spec& spec) : ReplicatedLinear(builder, quant::LayerKind::kLinear, spec) {}

 protected:
  ReplicatedLinear(Builder& builder, quant::LayerKind kind, const Spec& spec);
};

class ColumnParallelLinear : public LinearBase {
 public:
  static constexpr std::string_view kLayerName = "column_parallel_linear";
  using Spec = LinearSpec;
  ColumnParallelLinear(Builder& builder, const Spec& spec);
  // Whether a rank may have spec.own alone.
  static bool may_own(const Builder& builder, const Spec& spec);
};

class RowParallelLinear : public LinearBase {
 public:
  static constexpr std::string_view kLayerName = "row_parallel_linear";
  using Spec = LinearSpec;
  RowParallelLinear(Builder& builder, const Spec& spec);
};

// Several projections of one input as one matrix: x is read once.
class MergedColumnParallelLinear : public LinearBase {
 public:
  static constexpr std::string_view kLayerName = "merged_column_parallel_linear";
  struct Spec {
    std::string prefix;  // of the whole: "…mlp.gate_up_proj"
    int64_t in = 0;
    std::vector<std::string> members;  // its parts as the checkpoint has them, beside it: "gate_proj" -> "…mlp.gate_proj"
    std::vector<int64_t> out;
    bool bias = false;
    bool merged = false;          // the checkpoint has the whole under its own name, as adapters then do, and no parts
    std::vector<Share> own = {};  // as LinearSpec has it
  };
  MergedColumnParallelLinear(Builder& builder, const Spec& spec);
  static bool may_own(const Builder& builder, const Spec& spec);
};

// q, k and v of one attention. y = [q | k | v]
class QKVParallelLinear : public MergedColumnParallelLinear {
 public:
  static constexpr std::string_view kLayerName = "qkv_parallel_linear";
  struct Spec {
    std::string prefix;
    int64_t in = 0;
    int64_t head_dim = 0;
    int64_t heads = 0;
    int64_t kv_heads = 0;
    bool bias = false;
    bool merged = false;          // as MergedColumnParallelLinear has it
    std::vector<Share> own = {};  // as LinearSpec has it
  };
  QKVParallelLinear(Builder& builder, const Spec& spec);
  static bool may_own(const Builder& builder, const Spec& spec);
};

}  // namespace choral::layers
