// y = x·Wᵀ for weights of int8 with a float scale for each output channel, or for each channel and group of k, and x as int8 rows
// (quant/row_quant.h): a PackedMatrix in the layout of int8_panels.h.
//   dynamic: y[i, j] = (Σ over groups of float(Σ q·w) · scale[j, group]) · s[i]
//   static:  y[i, j] = float(Σ q·w − offset · Σ w) · scale[j], where `scale` is that of the product, x's scale · w's
// Integer sums are exact, the static offset's part included; a sum is turned to float once a group, groups are added in order of
// k with one fma each from 0, and the row's scale multiplies last (ref/int8_gemm.h). So the bits of y depend neither on the
// number of rows or threads nor on the CPU level. LoRA gets the float x, never this one. Bytes a weight: 1, and 4 for each scale.
// Immutable after packing; see PackedMatrix for threads.
#pragma once

#include "kernels/gemm/packed_matrix.h"

namespace choral::kernels {

struct Int8Part {
  WeightRows rows;                // int8 [rows, k]
  std::span<const float> scales;  // [rows, groups], rows as stored; for a static input those of the product (deq_scale)
};

struct Int8Options {
  int64_t group_size = 0;  // k of a scale: 32, 64, 128; 0: one scale for all of k
  RowQuant input = {};     // how multiply() makes int8 of x
};

// Parts are stacked in order and share k; a last group may be shorter. A wrong part is an error that names it. Sources may be
// dropped afterwards.
Result<std::unique_ptr<PackedMatrix>> pack_int8(std::span<const Int8Part> parts, const Int8Options& options, ThreadPool& pool);

}  // namespace choral::kernels
