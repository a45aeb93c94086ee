// One way to store a linear layer's weights, and the matrix that multiplies by them. A scheme is one file in schemes/ and one
// line of the table in quant_config.cc. It has no state: SchemeLinearMethod, one a layer, holds what it packed.
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

class Scheme {
 public:
  virtual ~Scheme() = default;

  // Registers what the checkpoint holds of a layer, its bias apart.
  virtual void create_weights(const LinearShape& shape, ParameterSet& parameters) const = 0;
  // The whole layer, of what was loaded.
  virtual Result<std::vector<PackedRun>> pack(const platform::Context& ctx, const WeightRequest& request,
                                              const LinearShape& shape, ParameterSet& parameters) const = 0;
};

// The schemes by name, as quant_model_description.json spells them. They live as long as the program.
const Scheme& float_scheme();           // FLOAT: bf16, f16, f32 or GGUF blocks, as stored or rounded to --dtype
const Scheme& w8a8_scheme();            // W8A8: int8 weights, one scale for each output channel, and one for all of x
const Scheme& w8a8_dynamic_scheme();    // W8A8_DYNAMIC: one for each row of x
const Scheme& w8a8_in_flight_scheme();  // W8A8_DYNAMIC of a float checkpoint, quantised while it is loaded

}  // namespace choral::quant
