// The oracle of gemm/int8: plain loops over rows of integers; it knows nothing of panels, vectors or how a weight is stored.
// For one output: acc = 0; for each group of `group` k in order (the last one may be shorter):
//   isum = sum q * w + correction        exact
//   acc  = fma(float(isum), scale_w, acc)
// and y = acc * scale_x. Every CPU level gives these bits.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/view.h"

namespace choral::kernels::ref {

struct Int8Weights {
  MatrixView<const int8_t> w;                  // [n, k]
  int64_t group;                               // at most 65536
  MatrixView<const float> scales;              // [n, groups]
  MatrixView<const int32_t> corrections = {};  // [n, groups], or none
};

// q [m, k] and its scales [m]; y [m, n].
void int8_gemm(MatrixView<const int8_t> q, std::span<const float> scale, const Int8Weights& weights, MatrixView<float> y);

}  // namespace choral::kernels::ref
