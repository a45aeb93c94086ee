// The two roundings of a float weight, one place each: what a wish (--quantization) makes of it while it is loaded, and what is
// written into a quantised checkpoint (quant/written), which therefore answers to the bit as the wish. Pure functions of the
// weight; work is divided over rows.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/context.h"
#include "tensor/tensor.h"

namespace choral::quant {

struct RoundedWeight {
  Tensor codes;               // int8, e4m3 or GGUF blocks, [rows, k]
  int64_t group_size = 0;     // k of a scale; 0: all of them
  std::vector<float> scales;  // [rows, groups]; of blocks none
};

// k of a scale where a weight of `k` columns is rounded to `bits`; 0: all of them.
int64_t rounded_group_size(int bits, int64_t k);

// To int8. 8 bits: s = max|w| / 127 of a channel, q = rint(w / s). 4 bits: s = w / -8 for the w of
// largest magnitude in a group of 32, so that it is met by -8, the longer end; q = rint(w / s) clamped to [-8, 7]. `name` is for
// the message about a number that is not finite.
Result<RoundedWeight> round_to_int(const kernels::Context& ctx, const TensorView& weight, int bits, std::string_view name);

// To e4m3: s = max|w| / 448 of a channel, w / s to nearest even.
Result<RoundedWeight> round_to_fp8(const kernels::Context& ctx, const TensorView& weight, std::string_view name);

// To blocks of a GGUF type (kernels/quant/quantise_blocks.h).
Result<RoundedWeight> round_to_blocks(const kernels::Context& ctx, const TensorView& weight, DType type, std::string_view name);

}  // namespace choral::quant
