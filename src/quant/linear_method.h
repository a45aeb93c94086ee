// How one linear layer's weights are made, loaded and multiplied. The layer owns shapes and sharding; the method owns parameters
// and arithmetic. Three calls at three times: create_weights when the layer is built, process_weights_after_loading when every
// tensor of the model was loaded, apply in forward. One object a layer; apply is const and thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/context.h"
#include "platform/platform.h"
#include "quant/parameter.h"

namespace choral::quant {

// Rows of a stored tensor that a rank of a divided model has: so many from `first` on, of `of`.
struct HeldRows {
  int64_t first = 0, of = 0;
};

// y = x·Wᵀ (+ bias), W [sum(out), in] stacked from one part a shard.
struct LinearShape {
  int64_t in = 0;
  std::vector<int64_t> out;              // rows of each shard, of those that are held
  std::vector<std::string> shard_names;  // checkpoint names without ".weight": "model.layers.0.self_attn.q_proj"
  bool bias = false;
  std::vector<HeldRows> held = {};  // of each shard, which may have a tensor's name more than once; empty: all rows of all

  // Rows of the shard as it is stored.
  int64_t stored_rows(size_t shard) const { return held.empty() ? out[shard] : held[shard].of; }
  int64_t out_total() const {
    int64_t total = 0;
    for (const int64_t rows : out) total += rows;
    return total;
  }
};

class LinearMethod {
 public:
  virtual ~LinearMethod() = default;

  virtual void create_weights(const LinearShape& shape, ParameterSet& parameters) = 0;
  // `kept`: layers that are packed already, or kept for a later load; null: neither.
  virtual Status process_weights_after_loading(const platform::Context& ctx, const WeightRequest& request,
                                               const LinearShape& shape, ParameterSet& parameters,
                                               PackedLayers* kept = nullptr) = 0;

  // What size_bytes() will be, but for the padding of panels: asked when every tensor was loaded and none is packed.
  virtual int64_t expected_bytes(const WeightRequest&, const LinearShape&, const ParameterSet& parameters) const {
    return parameters.stored_bytes();
  }

  // y [tokens, sum(out)] from x [tokens, in]; `epilogue.bias` is the method's own business and must be null.
  virtual void apply(const platform::Context& ctx, MatrixView<const float> x, const kernels::Epilogue& epilogue,
                     MatrixView<float> y) const = 0;
  // The products that apply() is, for whoever runs those of several layers at once (the operator grouped_matmul): calls take()
  // for each. False, and none is taken, of a method that is more than products: then apply() is the way.
  using TakeProduct = FunctionRef<void(const kernels::GroupProduct& product)>;
  virtual bool for_each_product(MatrixView<const float>, const kernels::Epilogue&, MatrixView<float>, TakeProduct) const {
    return false;
  }
  // How apply() quantises x at `level`; none: it reads the floats. apply_quantised() takes rows that were so quantised before
  // (kernels/quant/quantised_rows.h) and gives the bits of apply().
  virtual std::optional<kernels::RowForm> quantised_input(CpuLevel) const { return std::nullopt; }
  virtual void apply_quantised(const platform::Context&, const kernels::QuantisedRows&, const kernels::Epilogue&,
                               MatrixView<float>) const {
    CHORAL_CHECK(false, "only a method that names its quantised input takes one");
  }
  // out row i = row ids[i] of W: the embedding lookup. [ids, in]
  virtual void gather_rows(const platform::Context& ctx, platform::IndexArray<int32_t> ids, MatrixView<float> out) const = 0;

  // Row `row` of the stacked W as apply() multiplies by it, and the stacked bias (empty: none): what adapters are measured
  // against. An error is the device's.
  virtual Status read_row(int64_t row, std::span<float> out) const = 0;
  virtual std::span<const float> bias() const = 0;

  // How its weights are stored and multiplied, and why so: "W8A8_DYNAMIC", "--quantization w8a8_dynamic"; "q4_k", "as stored".
  virtual std::string scheme() const = 0;
  virtual std::string why() const = 0;
  virtual int64_t size_bytes() const = 0;  // of the packed weights
  virtual std::string format() const = 0;  // "bf16"; "q4_k+q6_k" for mixed shards
  virtual std::string kernel_name(CpuLevel level) const = 0;
};

}  // namespace choral::quant
