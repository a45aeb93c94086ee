#include "kernels/ref/integer_gemm.h"

#include <algorithm>
#include <cmath>

namespace choral::kernels::ref {

int Integers::value(int64_t row, int64_t i) const {
  const int code = q.row(row)[i];
  if (!e2m1) return code;
  const int exponent = code / 2 % 4, mantissa = code % 2;
  const int doubled = exponent == 0 ? mantissa : (2 + mantissa) << (exponent - 1);  // the least step is 1/2
  return code < 8 ? doubled : -doubled;
}

float Integers::scale(int64_t row, int64_t i) const { return scales.row(row)[i / group] * (e2m1 ? 0.5f : 1.0f); }

float Integers::min(int64_t row, int64_t i) const {
  if (zeros.data == nullptr) return 0.0f;
  return -(scales.row(row)[i / group] * static_cast<float>(zeros.row(row)[i / group]));
}

float integer_dot(const Integers& w, int64_t row, std::span<const QuantisedBlock> x) {
  float acc = 0.0f;
  for (size_t b = 0; b < x.size(); ++b) {
    const auto first = static_cast<int64_t>(b) * 32;
    int32_t isum = 0;
    for (int64_t i = 0; i < std::min<int64_t>(32, w.q.cols - first); ++i) isum += w.value(row, first + i) * x[b].q[i];
    acc = std::fma(static_cast<float>(isum), w.scale(row, first) * x[b].scale, acc);
    if (w.zeros.data != nullptr) acc = std::fma(w.min(row, first), x[b].sum, acc);
  }
  return acc;
}

}  // namespace choral::kernels::ref
