// Float rows to int8 with one scale per row ("dynamic quantisation"), what W8A8 checkpoints of that kind multiply with:
//   s = max|x| / 127,  q = rint(x / s) (float32 division, ties to even), clamped to [-127, 127]; so q is never -128.
//   A row whose s is 0 (all zero, or so small that max|x| / 127 underflows): q = 0, s = 0.
//   A row that holds a NaN or an infinity: q = 0, s = NaN; no other row is touched.
// All levels give the same bits. Pure functions; rows are divided over ctx.pool. Oracle: ref/row_quant.h.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "tensor/view.h"

namespace choral::kernels {

// q [rows, cols] and scale [rows] of x [rows, cols].
void dynamic_quant_rows(const Context& ctx, MatrixView<const float> x, MatrixView<int8_t> q, std::span<float> scale);

}  // namespace choral::kernels
