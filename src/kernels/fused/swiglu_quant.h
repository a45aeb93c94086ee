// The gated activation between an MLP's two matrices, quantised for the second one in the same pass:
//   y[t, i] = silu(x[t, i]) · x[t, n + i], x [rows, 2n] → to what that matrix wants (quantised_rows.h).
// The float y [rows, n] is written only where it is wanted (y.data not null): LoRA reads the float row, never the quantised one.
// y may be the left half of x. Bits are those of silu_and_mul and then quantise_rows. Pure functions; rows
// are divided over ctx.pool, a row of scratch per thread comes from ctx.scratch. Oracles: ref/activation.h, ref/row_quant.h.
#pragma once

#include "kernels/context.h"
#include "kernels/quant/quantised_rows.h"
#include "tensor/view.h"

namespace choral::kernels {

void silu_and_mul_quantise(const Context& ctx, MatrixView<const float> x, const QuantisedRows& out, MatrixView<float> y = {});

}  // namespace choral::kernels
