// The schemes of --quantization as quantised checkpoints hold them: which tensors a float weight becomes, and what the
// checkpoint's description says of it. One line a scheme and format in written_scheme.cc. The numbers are those of the wish
// (quant/rounded_weight.h), scales are float32, so the written checkpoint answers to the bit as the wish does. Pure functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "quant/rounded_weight.h"

namespace choral::quant {

// One tensor that a weight becomes.
struct WrittenPart {
  std::string name;  // within the layer: "weight_scale"
  DType dtype;
  Shape shape;
  // Of the rounded weight. The last part may take its codes.
  std::function<Result<Tensor>(RoundedWeight&)> make;
};

struct WrittenScheme {
  std::string_view name;    // "w8a8_dynamic"
  std::string_view format;  // "compressed-tensors" or "modelslim"
  int bits;
  bool is_float;           // e4m3
  bool int8_rows;          // activations are rounded too, for each row as it comes
  std::string_view label;  // how the format calls it: compressed-tensors' "format", ModelSlim's type
  std::vector<WrittenPart> (*parts)(const WrittenScheme& scheme, int64_t rows, int64_t k);

  int64_t group_size(int64_t k) const { return is_float ? 0 : rounded_group_size(bits, k); }
  Result<RoundedWeight> round(const kernels::Context& ctx, const TensorView& weight, std::string_view weight_name) const;
};

// An unknown name is an error that lists what there is.
Result<const WrittenScheme*> find_written_scheme(std::string_view scheme, std::string_view format);

// What keeps a weight of that size from being written so; `layer` is its name.
Status check_written(const WrittenScheme& scheme, std::string_view layer, int64_t rows, int64_t k);

}  // namespace choral::quant
