// One way to multiply by a linear layer's weights: which tensors of a checkpoint it takes, and the matrices it makes of them. A
// scheme is one file in schemes/. It has no state of a layer: SchemeLinearMethod, one a layer, holds what it packed.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "platform/context.h"
#include "platform/platform.h"
#include "quant/linear_method.h"

namespace choral::quant {

// Consecutive shards in one matrix: columns [begin, begin + matrix->n()) of y.
struct PackedRun {
  int64_t begin = 0;
  std::unique_ptr<kernels::PackedMatrix> matrix;
};

struct PackedLayer {
  std::vector<PackedRun> runs;
  std::vector<float> bias = {};  // [out] of a scheme that holds it, or none
};

class Scheme {
 public:
  virtual ~Scheme() = default;

  // Whether the layer's bias is among its own parameters; else SchemeLinearMethod loads it.
  virtual bool holds_bias() const { return false; }
  // Registers what the checkpoint holds of a layer.
  virtual void create_weights(const LinearShape& shape, ParameterSet& parameters) const = 0;
  // The whole layer, of what was loaded.
  virtual Result<PackedLayer> pack(const platform::Context& ctx, const WeightRequest& request, const LinearShape& shape,
                                   ParameterSet& parameters) const = 0;
};

using SchemePtr = std::shared_ptr<const Scheme>;

// The schemes by name, as quant_model_description.json spells them.
SchemePtr float_scheme();           // FLOAT: bf16, f16, f32 or GGUF blocks, as stored or rounded to --dtype
SchemePtr w8a8_scheme();            // W8A8: int8 weights, one scale for each output channel, and one for all of x
SchemePtr w8a8_dynamic_scheme();    // W8A8_DYNAMIC: one for each row of x
SchemePtr w8a8_in_flight_scheme();  // W8A8_DYNAMIC of a float checkpoint, quantised while it is loaded

// Rows and columns of a weight that share a scale; 0: the scale is a whole tensor's or a channel's.
struct Fp8Blocks {
  int64_t rows = 0, cols = 0;
};
// FP8: e4m3 with float x.
SchemePtr fp8_scheme(Fp8Blocks blocks);
SchemePtr fp8_in_flight_scheme();  // of a float checkpoint, a scale for each channel

}  // namespace choral::quant
