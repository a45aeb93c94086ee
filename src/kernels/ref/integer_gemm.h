// The oracle of gemm_integers.h: plain loops over rows of integers; it knows nothing of panels, vectors or how a weight is
// stored. For one output: acc = 0; for each block b of 32 k (the last one may be shorter), in order:
//   isum = sum v * q_x                         exact; v: the integer, or twice the number that an E2M1 code stands for
//   acc  = fma(float(isum), d * s_x, acc)      d: the group's scale, for E2M1 half of it
// and where there are zero points, after that: acc = fma(m, s_x * float(sum q_x), acc), m = -(scale * zero).
// Every CPU level gives these bits.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/quant/quantise_planes.h"
#include "tensor/view.h"

namespace choral::kernels::ref {

struct Integers {
  MatrixView<const int8_t> q;         // [n, k]
  int64_t group;                      // k of a scale
  MatrixView<const float> scales;     // [n, groups]
  MatrixView<const int16_t> zeros{};  // [n, groups], or none
  bool e2m1 = false;

  int value(int64_t row, int64_t i) const;    // v
  float scale(int64_t row, int64_t i) const;  // d
  float min(int64_t row, int64_t i) const;    // m, or 0
};

float integer_dot(const Integers& w, int64_t row, std::span<const QuantisedBlock> x);

}  // namespace choral::kernels::ref
