#include "kernels/ref/row_quant.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace choral::kernels::ref {

void dynamic_quant_rows(MatrixView<const float> x, MatrixView<int8_t> q, std::span<float> scale) {
  for (int64_t t = 0; t < x.rows; ++t) {
    float largest = 0.0f;
    bool finite = true;
    for (const float a : x.row_span(t)) {
      finite = finite && std::isfinite(a);
      largest = std::max(largest, std::fabs(a));
    }
    const float s = finite ? largest / 127.0f : std::numeric_limits<float>::quiet_NaN();
    scale[t] = s;
    for (int64_t i = 0; i < x.cols; ++i) {
      q.row(t)[i] = s > 0.0f ? static_cast<int8_t>(std::clamp(std::nearbyint(x.row(t)[i] / s), -127.0f, 127.0f)) : int8_t{0};
    }
  }
}

void static_quant_rows(MatrixView<const float> x, float quant_scale, int32_t offset, MatrixView<int8_t> q,
                       std::span<float> scale) {
  for (int64_t t = 0; t < x.rows; ++t) {
    const auto row = x.row_span(t);
    const bool finite = std::all_of(row.begin(), row.end(), [](float a) { return std::isfinite(a); });
    scale[t] = finite ? 1.0f : std::numeric_limits<float>::quiet_NaN();
    for (int64_t i = 0; i < x.cols; ++i) {
      const double rounded = finite ? std::nearbyint(x.row(t)[i] / quant_scale) + static_cast<double>(offset) : 0.0;
      q.row(t)[i] = static_cast<int8_t>(std::clamp(rounded, -128.0, 127.0));
    }
  }
}

}  // namespace choral::kernels::ref
