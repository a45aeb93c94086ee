// The gated activation between an MLP's two matrices, quantised for the second one in the same pass:
//   y[t, i] = silu(x[t, i]) · x[t, n + i], x [rows, 2n] → to what that matrix wants (quantised_rows.h).
// The float y [rows, n] is written only where it is wanted (y.data not null): LoRA reads the float row, never the quantised one.
// y may be the left half of x. Bits are those of silu_and_mul and then quantise_rows. Pure functions; rows
// are divided over ctx.pool, a row of scratch per thread comes from ctx.scratch. Oracles: ref/swiglu_quant.h, ref/row_quant.h.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/fused/row_groups.h"
#include "kernels/quant/quantised_rows.h"
#include "tensor/view.h"

namespace choral::kernels {

void silu_and_mul_quantise(const Context& ctx, MatrixView<const float> x, const QuantisedRows& out, MatrixView<float> y = {});

// Which half of a row silu is taken of; the other one is multiplied with it.
enum class SiluHalf { kLeft, kRight };

// The sums of an int8 product [rows, 2n] and what makes numbers of them: a[t, c] = (float(sums[t, c]) · weight_scale[g, c]) ·
// row_scale[t]. For experts, rows come sorted in groups; weight_scale and smooth have one row for each group, or one for all.
struct Int8Product {
  MatrixView<const int32_t> sums;        // [rows, 2n]
  MatrixView<const float> weight_scale;  // [groups or 1, 2n]
  std::span<const float> row_scale;      // [rows]
};

// y = silu(a's half) · (a's other half); q, scale = dynamic_quant_rows(y · smooth). `smooth` [groups or 1, n], or empty (data
// null) for none; the float y, if wanted, is the one before it. `groups` null: all rows are one group.
void dequant_swiglu_quant(const Context& ctx, const Int8Product& product, SiluHalf half, MatrixView<const float> smooth,
                          const RowGroups* groups, MatrixView<int8_t> q, std::span<float> scale, MatrixView<float> y = {});

}  // namespace choral::kernels
