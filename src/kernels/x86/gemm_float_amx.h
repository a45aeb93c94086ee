// y = x·Wᵀ for bf16 weights at CPU level amx, with x kept whole: x = hi + mid + lo, three exact bf16 terms
// (gemm_float_amx_split.h), and for each block of 32 k, in fp32,
//   acc += lo·W;  acc += mid·W;  acc += hi·W
// where each step is what the instruction TDPBF16PS computes: e and o, fma chains over the even and the odd k of the block from
// 0, then acc + (e + o); to nearest even, subnormal terms and sums taken as zero. The error keeps the plain fp32 chain's bound.
// Several rows run on the tile unit, a single row in AVX-512 (gemm_float_amx_row.h), with equal bits: invariant 1. The order
// within the instruction is documented and was measured; a CPU that sums otherwise fails a probe and runs avx512 code instead.
// An infinite x stays an infinity (mid = lo = 0); an infinite weight may give NaN. docs/design/amx-exact-bf16.md has the figures.
#pragma once

#include "kernels/gemm/gemm_float_blocking.h"

namespace choral::kernels {

// True if the process may use the tile unit and it gives the bits above; the probe runs once, in well under a millisecond.
bool tile_unit_is_exact();

// PackedMatrix::plan() and most_rows() for dtype kBF16 where tile_unit_is_exact().
const MatrixProduct* plan_panels_amx(const FloatPanels& w, const Context& ctx, MatrixView<const float> x,
                                     const Epilogue& epilogue, MatrixView<float> y, int threads);
int64_t most_amx_rows();

}  // namespace choral::kernels
