// How y = x·Wᵀ of int8 rows is cut into micro-kernel calls: panels divided over the threads, k in blocks whose weights stay in L1
// while all row tiles go over them; a single row tile runs down whole panels instead, several at once, straight from memory. All
// cuts are invisible in the result (int8_kernels.h).
#pragma once

#include <span>

#include "kernels/gemm/int8/int8_kernels.h"
#include "kernels/gemm/int8/int8_panels.h"
#include "kernels/gemm/packed_matrix.h"

namespace choral::kernels {

// Rows [first_row, first_row + m) of y from q [m, k] and its scales [m], with the epilogue of packed_matrix.h; scratch from
// ctx.scratch.
void multiply_int8_panels(const Int8Panels& w, const Context& ctx, MatrixView<const int8_t> q, std::span<const float> scales,
                          int64_t first_row, const Epilogue& epilogue, MatrixView<float> y);

}  // namespace choral::kernels
