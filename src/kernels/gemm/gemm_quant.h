// y = x·Wᵀ for GGUF's block-quantised weights, kept in their own precision: a PackedMatrix in the layout of quant_panels.h.
// x is quantised once a call to two int8 planes, coarse and fine (quantise_planes.h: 16 bits, so y is that of float x but for
// 2^-16), each plane is multiplied as a row of its own, and y is their sum. Sums over a block are exact integers, and blocks are
// added in order of k with one fma each (ref/quant.h has the formula): the bits of y depend neither on the number of rows or
// threads nor on the CPU level. Bytes per weight, source -> packed:  Q8_0 1.0625 -> same.  Q4_0, IQ4_NL 0.5625, Q4_1 0.625, Q5_0
// 0.6875, Q5_1 0.75 -> same.
//   Q4_K 0.5625 -> 0.578.  Q5_K 0.6875 -> 0.703.  Q6_K 0.820 -> 0.828.  Q2_K 0.328 -> same.  Q3_K 0.430 -> 0.453.  IQ4_XS 0.531
//   -> 0.547.  TQ1_0 0.211, TQ2_0 0.258 -> 0.266.  MXFP4 0.531 -> 0.625.  IQ1_S 0.195, IQ2_XXS 0.258 -> 0.422.
//   IQ1_M 0.219, IQ2_XS 0.289, IQ2_S 0.320 -> 0.453.  IQ3_XXS 0.383, IQ3_S 0.430 -> 0.547.  n is padded to 16 rows; an odd number
//   of blocks to two (Q8_0, Q4_0, Q5_0, IQ4_NL).
// LoRA gets the float x, never this one. Immutable after packing; see PackedMatrix for threads.
#pragma once

#include "kernels/gemm/packed_matrix.h"

namespace choral::kernels {

bool can_pack_quantised(DType type);

// Parts are stacked in order and share dtype and k; k is whole blocks. A wrong part is an error that names it. The source may be
// dropped afterwards. With one plane of x the product takes half the work and carries 8 bits of x.
Result<std::unique_ptr<PackedMatrix>> pack_quantised(std::span<const WeightRows> parts, ThreadPool& pool,
                                                     Planes planes = Planes::kTwo);

}  // namespace choral::kernels
