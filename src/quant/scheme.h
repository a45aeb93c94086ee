// One way to multiply by a linear layer's weights: which tensors of a checkpoint it takes, and the matrices it makes of them. A
// scheme is one file in schemes/. It has no state of a layer: SchemeLinearMethod, one a layer, holds what it packed.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "platform/context.h"
#include "platform/platform.h"
#include "quant/integers/integer_storage.h"
#include "quant/linear_method.h"

namespace choral::quant {

struct PackedLayer {
  std::vector<PackedRun> runs;
  std::vector<float> bias = {};  // [out] of a scheme that holds it, or none
};

class Scheme {
 public:
  virtual ~Scheme() = default;
  virtual std::string name() const = 0;  // "W8A8_DYNAMIC"; empty: that of the format the weights are stored in

  // Whether the layer's bias is among its own parameters; else SchemeLinearMethod loads it.
  virtual bool holds_bias() const { return false; }
  // Registers what the checkpoint holds of a layer.
  virtual void create_weights(const LinearShape& shape, ParameterSet& parameters) const = 0;
  // What pack() will make of what was loaded, padding apart: as much as is stored, unless the scheme converts it.
  virtual int64_t expected_bytes(const WeightRequest&, const LinearShape&, const ParameterSet& parameters) const {
    return parameters.stored_bytes();
  }
  // The whole layer, of what was loaded.
  virtual Result<PackedLayer> pack(const platform::Context& ctx, const WeightRequest& request, const LinearShape& shape,
                                   ParameterSet& parameters) const = 0;
};

using SchemePtr = std::shared_ptr<const Scheme>;

// What one layer gets.
struct LayerScheme {
  SchemePtr scheme;
  std::string why;  // "--quantization w8a16"; "ignored by config.json: quantization_config.ignore"
};

using StoragePtr = std::shared_ptr<const IntegerStorage>;

// FLOAT: bf16, f16, f32 or GGUF blocks, as stored or rounded to --dtype.
SchemePtr float_scheme();
// W8A16, W4A16: integers of W with x in full.
SchemePtr weight_only_scheme(StoragePtr storage);
// W8A8_DYNAMIC, W4A8_DYNAMIC: with x as int8, a scale for each row as it comes.
SchemePtr dynamic_scheme(StoragePtr storage);
// W8A8: with x as int8 of one scale, known from calibration: `input_scale`, and if asymmetric `input_zero_point`.
SchemePtr static_scheme(StoragePtr storage, bool symmetric_input);
// W8A8 as ModelSlim writes it: `deq_scale` of the product, `quant_bias` in its units.
SchemePtr modelslim_static_scheme();

// Rows and columns of a weight that share a scale; 0: the scale is a whole tensor's or a channel's.
struct Fp8Blocks {
  int64_t rows = 0, cols = 0;
  bool said = true;  // by the checkpoint; else a scale's shape tells whether it is of blocks, of a channel or of all
};
// FP8: e4m3 with x in full.
SchemePtr fp8_scheme(Fp8Blocks blocks);
SchemePtr fp8_in_flight_scheme();  // of a float checkpoint, a scale for each channel

}  // namespace choral::quant
