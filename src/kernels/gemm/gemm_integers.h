// y = x·Wᵀ for weights of 4- or 8-bit integers with a float scale for each output channel and group of k, and a zero point where
// they have one: what GPTQ, AWQ, compressed-tensors and MXFP4 checkpoints hold. A PackedMatrix in the layout of quant_panels.h,
// in their own bits; x is multiplied as by gemm_quant.h, and so is W: exact integer sums of 32 k, scaled and added in order of k
// with one fma each, and for zero points a second one (ref/integer_gemm.h has the formula). The bits of y depend neither on the
// number of rows or threads nor on the CPU level.
//   w = scale · (q − zero), as scale · q + m with m = −(scale · zero) rounded to float once: exact for scales of 16-bit floats.
// Bytes a weight: bits / 8, and 4 for each scale and each m of up to 256 k; a longer group repeats them every 256 k. k is padded
// to 32 with zeros, as x is. Immutable after packing; see PackedMatrix for threads.
#pragma once

#include "kernels/gemm/packed_matrix.h"

namespace choral::kernels {

struct IntegerPart {
  WeightRows rows;                      // int8 [rows, k], one integer a byte: -8..7 of 4 bits, codes 0..15 of a codebook
  std::span<const float> scales;        // [rows, groups], rows as stored
  std::span<const int16_t> zeros = {};  // as many, within one of what the bits hold, or none; of all parts or of none
};

// What an integer stands for.
enum class Codebook : uint8_t {
  kLinear,  // itself
  kE2M1,    // 4 bits: the float of a sign, two exponent bits and a mantissa bit: 0 .5 1 1.5 2 3 4 6, and from code 8 on negated
};

struct IntegerOptions {
  int bits = 4;            // 4 or 8
  int64_t group_size = 0;  // k of a scale, a multiple of 32; the last group may be shorter. 0: one scale for all of k
  Codebook codebook = Codebook::kLinear;
  Planes planes = Planes::kTwo;  // of x
};

// Parts are stacked in order and share k. A wrong part is an error that names it. Sources may be
// dropped afterwards. read_row() gives scale · q + m, rounded after the product and after the sum (both exact for scales of
// 16-bit floats).
Result<std::unique_ptr<PackedMatrix>> pack_integers(std::span<const IntegerPart> parts, const IntegerOptions& options,
                                                    ThreadPool& pool);

}  // namespace choral::kernels
