#include "kernels/ref/activation.h"

#include <cmath>
#include <numbers>

namespace choral::kernels::ref {

double activation(Activation f, double x) {
  switch (f) {
    case Activation::kSilu: return x / (1.0 + std::exp(-x));
    case Activation::kSigmoid: return 1.0 / (1.0 + std::exp(-x));
    case Activation::kGelu: return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kGeluTanh: {
      const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return x / (1.0 + std::exp(-2.0 * u));  // 0.5·x·(1 + tanh u) without its cancellation
    }
  }
  return 0.0;
}

void activation_and_mul(Activation f, MatrixView<const float> x, MatrixView<float> y) {
  for (int64_t t = 0; t < y.rows; ++t) {
    for (int64_t i = 0; i < y.cols; ++i) y.row(t)[i] = static_cast<float>(activation(f, x.row(t)[i]) * x.row(t)[y.cols + i]);
  }
}

void swigluoai_and_mul(const ClampedSwiglu& form, MatrixView<const float> x, MatrixView<float> y) {
  const double limit = form.limit;
  for (int64_t t = 0; t < y.rows; ++t) {
    for (int64_t i = 0; i < y.cols; ++i) {
      double gate = x.row(t)[2 * i], up = x.row(t)[2 * i + 1];
      if (gate > limit) gate = limit;
      if (up > limit) up = limit;
      if (up < -limit) up = -limit;
      y.row(t)[i] = static_cast<float>((up + 1.0) * gate / (1.0 + std::exp(-form.alpha * gate)));
    }
  }
}

}  // namespace choral::kernels::ref
