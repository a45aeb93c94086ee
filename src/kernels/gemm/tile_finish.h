// What becomes of a finished tile of sums where no micro-kernel does it: the epilogue of packed_matrix.h, step by step.
// Pure functions; each tile is one thread's.
#pragma once

#include "kernels/gemm/packed_matrix.h"

namespace choral::kernels {

// y = sums (+ product hook) (+ bias) (+ old y) (+ result hook), in this order for every shape of tile. `y` holds the rows of
// `sums` with all their columns; the tile's first column is `col`.
void finish_tile(MatrixView<float> sums, int64_t col, const Epilogue& epilogue, MatrixView<float> y);

}  // namespace choral::kernels
