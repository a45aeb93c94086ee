#include "kernels/ref/gemm.h"

#include <cmath>

namespace choral::kernels::ref {

void gemm_double(MatrixView<const float> x, MatrixView<const float> w, MatrixView<double> y, MatrixView<double> magnitude) {
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t j = 0; j < w.rows; ++j) {
      double sum = 0, absolute = 0;
      for (int64_t k = 0; k < x.cols; ++k) {
        const double product = static_cast<double>(x.row(i)[k]) * w.row(j)[k];
        sum += product;
        absolute += std::fabs(product);
      }
      y.row(i)[j] = sum;
      magnitude.row(i)[j] = absolute;
    }
  }
}

void gemm_in_order(MatrixView<const float> x, MatrixView<const float> w, Step step, MatrixView<float> y) {
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t j = 0; j < w.rows; ++j) {
      float acc = 0;
      for (int64_t k = 0; k < x.cols; ++k) {
        acc = step == Step::kFused ? std::fma(x.row(i)[k], w.row(j)[k], acc) : acc + x.row(i)[k] * w.row(j)[k];
      }
      y.row(i)[j] = acc;
    }
  }
}

}  // namespace choral::kernels::ref
