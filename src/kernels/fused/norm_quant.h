// RMSNorm and quantisation in one pass over a row, so that the normalised row need not be written and read again:
//   residual += x;  y = rms_norm(residual);  y quantised
// to int8 with one scale per row (row_quant.h) or to the block planes that a quantised GEMM reads (quantise_rows.h).
// The float y is written only where it is wanted (y.data not null): LoRA reads the float row, never the quantised one. y may be
// x. Bits are those of add, rms_norm, dynamic_quant_rows / quantise_rows one after the other. Pure functions; rows are divided
// over ctx.pool, a row of scratch per thread comes from ctx.scratch. Oracle: ref/norm_quant.h.
#pragma once

#include <span>

#include "kernels/norm/rms_norm.h"
#include "kernels/quant/quantise_rows.h"

namespace choral::kernels {

// q [rows, cols], scale [rows] and, if wanted, y [rows, cols] from x, residual [rows, cols] and w [cols].
void add_rms_norm_dynamic_quant(const Context& ctx, MatrixView<const float> x, MatrixView<float> residual,
                                std::span<const float> w, float eps, MatrixView<int8_t> q, std::span<float> scale,
                                MatrixView<float> y = {}, NormWeight form = NormWeight::kPlain);

// Plane p of row r goes to planes[(2 r + p) * (cols / 32)]; cols is a multiple of 32.
void add_rms_norm_quantise(const Context& ctx, MatrixView<const float> x, MatrixView<float> residual, std::span<const float> w,
                           float eps, QuantiseOptions options, QuantisedBlock* planes, MatrixView<float> y = {},
                           NormWeight form = NormWeight::kPlain);

// The same without a residual: y = rms_norm(x).
void rms_norm_quantise(const Context& ctx, MatrixView<const float> x, std::span<const float> w, float eps,
                       QuantiseOptions options, QuantisedBlock* planes, MatrixView<float> y = {},
                       NormWeight form = NormWeight::kPlain);

}  // namespace choral::kernels
