#include "kernels/gemm/tile_finish.h"

#include <algorithm>

namespace choral::kernels {

void finish_tile(MatrixView<float> sums, int64_t col, const Epilogue& epilogue, MatrixView<float> y) {
  if (epilogue.product_hook != nullptr) (*epilogue.product_hook)(epilogue.row, epilogue.col + col, sums);
  if (epilogue.bias != nullptr) {
    const float* bias = epilogue.bias + col;
    for (int64_t r = 0; r < sums.rows; ++r) {
      float* s = sums.row(r);
      for (int64_t c = 0; c < sums.cols; ++c) s[c] += bias[c];
    }
  }
  for (int64_t r = 0; r < sums.rows; ++r) {
    const float* s = sums.row(r);
    float* out = y.row(r) + col;
    if (epilogue.accumulate) {
      for (int64_t c = 0; c < sums.cols; ++c) out[c] = s[c] + out[c];
    } else {
      std::copy_n(s, sums.cols, out);
    }
  }
  if (epilogue.result_hook != nullptr) {
    (*epilogue.result_hook)(epilogue.row, epilogue.col + col, y.sub_rows(0, sums.rows).sub_cols(col, sums.cols));
  }
}

}  // namespace choral::kernels
