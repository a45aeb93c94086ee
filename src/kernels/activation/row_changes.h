// What a row is changed by as a whole, a few families' steps. Divided over rows; a row's sums have one order. Any thread of a
// step.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "tensor/view.h"

namespace choral::kernels {

// A factor of queries that grows with the position: 1 + beta·log(1 + floor(position / period)).
struct PositionScale {
  double beta = 0;
  int64_t period = 1;

  float at(int64_t position) const;
};

// row i *= scale.at(positions[i])
void scale_by_position(const Context& ctx, const PositionScale& scale, std::span<const int32_t> positions, MatrixView<float> x);

// y = x - mean(x) of each row; x and y may be the same
void subtract_mean(const Context& ctx, MatrixView<const float> x, MatrixView<float> y);

}  // namespace choral::kernels
