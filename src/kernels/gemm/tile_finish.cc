#include "kernels/gemm/tile_finish.h"

#include <algorithm>

#include "kernels/add_floats.h"

namespace choral::kernels {

void finish_tile(MatrixView<float> sums, int64_t col, const Epilogue& epilogue, MatrixView<float> y) {
  if (epilogue.product_hook != nullptr) (*epilogue.product_hook)(epilogue.row, epilogue.col + col, sums);
  if (epilogue.bias != nullptr) {
    for (int64_t r = 0; r < sums.rows; ++r) add_floats(epilogue.bias + col, sums.row(r), sums.cols);
  }
  for (int64_t r = 0; r < sums.rows; ++r) {
    const float* s = sums.row(r);
    float* out = y.row(r) + col;
    if (epilogue.accumulate) {
      add_floats(s, out, sums.cols);
    } else {
      std::copy_n(s, sums.cols, out);
    }
  }
  if (epilogue.result_hook != nullptr) {
    (*epilogue.result_hook)(epilogue.row, epilogue.col + col, y.sub_rows(0, sums.rows).sub_cols(col, sums.cols));
  }
}

}  // namespace choral::kernels
