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

}  // namespace choral::kernels::ref
