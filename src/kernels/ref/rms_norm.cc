#include "kernels/ref/rms_norm.h"

#include <cmath>

namespace choral::kernels::ref {

void rms_norm(MatrixView<const float> x, std::span<const float> w, float eps, MatrixView<float> y, std::span<const float> bias) {
  for (int64_t i = 0; i < x.rows; ++i) {
    double squares = 0.0;
    for (const float a : x.row_span(i)) squares += static_cast<double>(a) * a;
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(x.cols) + eps);
    for (int64_t j = 0; j < x.cols; ++j) {
      y.row(i)[j] = static_cast<float>(x.row(i)[j] * factor * w[j] + (bias.empty() ? 0.0 : bias[j]));
    }
  }
}

}  // namespace choral::kernels::ref
