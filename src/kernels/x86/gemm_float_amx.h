// y = x·Wᵀ on the tile unit (AMX-BF16) for bf16 weights, with x kept whole: x = hi + mid + lo, three bf16 terms cut from the
// 24 significant bits (8 each, so the split is exact), and for each block of 32 k
//   acc += lo·W;  acc += mid·W;  acc += hi·W      (TDPBF16PS: 16 pairs of k in order, even and odd k apart, then their sum)
// in fp32. The same operations in the same order for every number of rows: invariant 1. Error is below the fp32 chain's.
// The unit takes and gives subnormal numbers as zero: terms of x below 2^-126 and sums below 2^-126 are lost.
// An infinite x keeps mid = lo = 0 and stays an infinity; an infinite weight gives NaN.
#pragma once

#include "kernels/gemm_float_blocking.h"

namespace choral::kernels {

// For CPU level amx and dtype kBF16.
void multiply_panels_amx(const FloatPanels& w, const Context& ctx, MatrixView<const float> x, const Epilogue& epilogue,
                         MatrixView<float> y);

// Tile products in registers only, for the roofline: returns the flop done in `steps` rounds.
double burn_amx_bf16(int64_t steps);

}  // namespace choral::kernels
