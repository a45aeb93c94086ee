#include "kernels/ref/swiglu_quant.h"

#include <vector>

#include "kernels/ref/activation.h"
#include "kernels/ref/row_quant.h"

namespace choral::kernels::ref {

void dequant_swiglu_quant(const Int8Product& product, SiluHalf half, MatrixView<const float> smooth, const RowGroups* groups,
                          MatrixView<int8_t> q, std::span<float> scale, MatrixView<float> y) {
  const int64_t n = y.cols;
  std::vector<float> smoothed(n);
  int64_t g = 0, end = groups == nullptr ? y.rows : groups->rows(0, 0).end;
  for (int64_t t = 0; t < y.rows; ++t) {
    while (t >= end) end = groups->rows(++g, end).end;
    const float* weight_scale = product.weight_scale.row(product.weight_scale.rows == 1 ? 0 : g);
    const auto a = [&](int64_t c) {
      return static_cast<double>(product.sums.row(t)[c]) * weight_scale[c] * product.row_scale[t];
    };
    for (int64_t i = 0; i < n; ++i) {
      const double left = a(i), right = a(n + i);
      const double gated =
          half == SiluHalf::kLeft ? activation(Activation::kSilu, left) * right : left * activation(Activation::kSilu, right);
      y.row(t)[i] = static_cast<float>(gated);
      smoothed[i] = smooth.data == nullptr ? y.row(t)[i] : y.row(t)[i] * smooth.row(smooth.rows == 1 ? 0 : g)[i];
    }
    dynamic_quant_rows({smoothed.data(), 1, n}, {q.row(t), 1, n}, scale.subspan(t, 1));
  }
}

}  // namespace choral::kernels::ref
