// RMSNorm and quantisation in one pass over a row, so that the normalised row need not be written and read again:
//   y = rms_norm(x), quantised as a quantised GEMM reads it (quantised_rows.h).
// The float y is written only where it is wanted (y.data not null): LoRA reads the float row, never the quantised one. y may be
// x. Bits are those of rms_norm and quantise_rows one after the other. Pure functions; rows are divided over
// ctx.pool, a row of scratch per thread comes from ctx.scratch. Oracle: ref/norm_quant.h.
#pragma once

#include <span>

#include "kernels/norm/rms_norm.h"
#include "kernels/quant/quantised_rows.h"

namespace choral::kernels {

// `out` and, if wanted, y [rows, cols] from x [rows, cols], w [cols] and bias [cols] or empty.
void rms_norm_quantise(const Context& ctx, MatrixView<const float> x, std::span<const float> w, float eps,
                       const QuantisedRows& out, MatrixView<float> y = {}, std::span<const float> bias = {});

}  // namespace choral::kernels
