#include "kernels/ref/int8_gemm.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace choral::kernels::ref {

void int8_gemm(MatrixView<const int8_t> q, std::span<const float> scale, const Int8Weights& weights, MatrixView<float> y) {
  for (int64_t i = 0; i < q.rows; ++i) {
    for (int64_t j = 0; j < weights.w.rows; ++j) {
      float acc = 0.0f;
      for (int64_t begin = 0; begin < q.cols; begin += weights.group) {
        const int64_t g = begin / weights.group, end = std::min(q.cols, begin + weights.group);
        int64_t sum = weights.corrections.data == nullptr ? 0 : weights.corrections.row(j)[g];
        for (int64_t k = begin; k < end; ++k) sum += int64_t{q.row(i)[k]} * weights.w.row(j)[k];
        CHORAL_CHECK(std::abs(sum) <= std::numeric_limits<int32_t>::max(), "a group's sum is an int32");
        acc = std::fma(static_cast<float>(static_cast<int32_t>(sum)), weights.scales.row(j)[g], acc);
      }
      y.row(i)[j] = acc * scale[static_cast<size_t>(i)];
    }
  }
}

}  // namespace choral::kernels::ref
