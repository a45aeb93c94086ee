#include "kernels/ref/rms_norm.h"

#include <cmath>

namespace choral::kernels::ref {

void rms_norm(MatrixView<const float> x, std::span<const float> w, float eps, MatrixView<float> y, NormWeight form) {
  for (int64_t i = 0; i < x.rows; ++i) {
    double squares = 0.0;
    for (const float a : x.row_span(i)) squares += static_cast<double>(a) * a;
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(x.cols) + eps);
    for (int64_t j = 0; j < x.cols; ++j) {
      const double weight = (form == NormWeight::kOnePlus ? 1.0 : 0.0) + w[j];
      y.row(i)[j] = static_cast<float>(x.row(i)[j] * factor * weight);
    }
  }
}

}  // namespace choral::kernels::ref
