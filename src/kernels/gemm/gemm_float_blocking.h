// How y = x·Wᵀ is cut into micro-kernel calls: x packed once into row tiles, panels divided over the threads, k in blocks whose
// widened weights stay in L1, the epilogue on finished tiles. All cuts are invisible in the result (gemm_float_kernels.h).
// Few rows (a tile of registers at most) run down whole panels, several at once, straight from memory; more rows reuse each
// block of weights, widened to float once, for all row tiles.
#pragma once

#include "kernels/gemm/gemm_float_kernels.h"
#include "kernels/gemm/matrix_product.h"

namespace choral::kernels {

// PackedMatrix::plan() and most_rows().
const MatrixProduct* plan_float_panels(const FloatKernels& kernels, const FloatPanels& w, const Context& ctx,
                                       MatrixView<const float> x, const Epilogue& epilogue, MatrixView<float> y, int threads);
int64_t most_float_rows();

// `most`, halved until it is no more than `left`.
int64_t largest_group(int64_t most, int64_t left);

}  // namespace choral::kernels
