#include "kernels/ref/fp8_gemm.h"

#include <cmath>

namespace choral::kernels::ref {
namespace {

// e4m3 by its definition: 2^(e − 7) · (1 + m / 8), and m · 2^-9 where e = 0; exact.
float value_of(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float magnitude =
      exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9) : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

}  // namespace

void fp8_weight(MatrixView<const uint8_t> codes, int64_t group, MatrixView<const float> scales, MatrixView<float> w) {
  for (int64_t j = 0; j < codes.rows; ++j) {
    for (int64_t k = 0; k < codes.cols; ++k) w.row(j)[k] = value_of(codes.row(j)[k]) * scales.row(j)[k / group];
  }
}

}  // namespace choral::kernels::ref
