// How y = x·Wᵀ of int8 rows is cut into micro-kernel calls: panels divided over the threads, k in blocks whose weights stay in L1
// while all row tiles go over them; a single row tile runs down whole panels instead, several at once, straight from memory. All
// cuts are invisible in the result (int8_kernels.h).
#pragma once

#include "kernels/gemm/int8/int8_kernels.h"
#include "kernels/gemm/int8/int8_panels.h"
#include "kernels/gemm/matrix_product.h"
#include "kernels/gemm/packed_matrix.h"

namespace choral::kernels {

// PackedMatrix::plan() and most_rows(); floats are quantised as `form` says.
const MatrixProduct* plan_int8_panels(const Int8Panels& w, const Context& ctx, const RowForm& form, const ProductInput& x,
                                      const Epilogue& epilogue, MatrixView<float> y, int threads);
int64_t most_int8_rows();

}  // namespace choral::kernels
