// Schemes as quantised checkpoints hold them: which tensors a float weight becomes, and what the checkpoint's description says of
// it. One line a scheme and format in written_scheme.cc. The numbers are those of --quantization (quant/rounded_weight.h), scales
// are float32, so the written checkpoint answers to the bit as the wish of the same name; w8a8, whose scales of x were found by
// reading a text, is no wish. Pure functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "quant/rounded_weight.h"
#include "quant/written/fixed_input.h"

namespace choral::quant {

// A layer whose weight is written, and what its tensors are made of.
struct LayerToWrite {
  int64_t rows = 0, k = 0;
  DType stored = DType::kBF16;  // its float weight
  bool row_parallel = false;    // engines on several devices divide it along k
};
struct LayerValues {
  RoundedWeight weight;
  kernels::StaticQuant input = {};  // of a scheme with a fixed one
  std::vector<float> bias = {};     // of such a scheme, [rows]; none: 0
};

// One tensor that a weight becomes.
struct WrittenPart {
  std::string name;  // within the layer: "weight_scale"
  DType dtype;
  Shape shape;
  // The last part may take the weight's codes.
  std::function<Result<Tensor>(LayerValues&)> make;
};

// How x is rounded.
enum class WrittenInput : uint8_t {
  kFloat,            // not at all
  kInt8Rows,         // each row as it comes
  kFixed,            // all rows by one scale, known from calibration
  kFixedWithOffset,  // and one offset
};

struct WrittenScheme {
  std::string_view name;    // "w8a8_dynamic"
  std::string_view format;  // "compressed-tensors", "modelslim" or "gguf"
  int bits;
  DType codes;  // int8, e4m3 or GGUF blocks
  WrittenInput input;
  std::string_view label;  // how the format calls it: compressed-tensors' "format", ModelSlim's and GGUF's type
  std::vector<WrittenPart> (*parts)(const WrittenScheme& scheme, const LayerToWrite& layer);

  bool input_is_fixed() const { return input == WrittenInput::kFixed || input == WrittenInput::kFixedWithOffset; }
  int64_t group_size(int64_t k) const { return codes == DType::kI8 ? rounded_group_size(bits, k) : 0; }
  Result<RoundedWeight> round(const kernels::Context& ctx, const TensorView& weight, std::string_view weight_name) const;
};

// An unknown name is an error that lists what there is.
Result<const WrittenScheme*> find_written_scheme(std::string_view scheme, std::string_view format);

// What keeps a weight of that size from being written so; `layer` is its name.
Status check_written(const WrittenScheme& scheme, std::string_view layer, int64_t rows, int64_t k);

}  // namespace choral::quant
