// What becomes of a finished tile of sums: the epilogue of packed_matrix.h, step by step. Pure functions; each tile is one
// thread's.
#pragma once

#include "base/aligned_buffer.h"
#include "base/cpu_level.h"
#include "kernels/gemm/packed_matrix.h"

namespace choral::kernels {

// y = sums (+ product hook) (+ bias) (+ old y) (+ result hook), in this order for every shape of tile. `y` holds the rows of the
// tile with all their columns; the tile's first column is `col`. A row's sums are those of its `planes`, 1 or 2, one row of
// `sums` after the other.
void finish_tile(CpuLevel level, MatrixView<float> sums, int planes, int64_t col, const Epilogue& epilogue, MatrixView<float> y);

// Asks for the lines that a tile will be finished into, while it is computed: stores that miss wait for each other.
inline void fetch_target(MatrixView<float> target) {
  constexpr int64_t kLine = kCacheLineBytes / sizeof(float);
  for (int64_t i = 0; i < target.rows; ++i) {
    for (int64_t j = 0; j < target.cols; j += kLine) __builtin_prefetch(target.row(i) + j, 1);
  }
}

}  // namespace choral::kernels
