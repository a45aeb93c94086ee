// RMSNorm in float32 throughout: y = x · rsqrt(mean(x²) + eps) · w, and + bias where a checkpoint has one (ModelSlim's do, whose
// outliers were smoothed).
// A row is summed in one fixed order whatever the number of rows and threads (invariant 1), so fused and unfused forms agree to
// the bit. Pure functions; rows are divided over ctx.pool. Oracle: ref/rms_norm.h.
#pragma once

#include <span>

#include "kernels/context.h"
#include "tensor/view.h"

namespace choral::kernels {

// y [rows, cols] from x [rows, cols], w [cols] and bias [cols] or empty; y may be x itself.
void rms_norm(const Context& ctx, MatrixView<const float> x, std::span<const float> w, float eps, MatrixView<float> y,
              std::span<const float> bias = {});

// residual += x; y = rms_norm(residual). y may be x; residual is neither.
void add_rms_norm(const Context& ctx, MatrixView<const float> x, MatrixView<float> residual, std::span<const float> w, float eps,
                  MatrixView<float> y, std::span<const float> bias = {});

// Norms each of the `heads` heads of x [tokens, heads · head_dim] by itself, in place; w [head_dim]. The q/k norm of Qwen3 and
// Gemma 3. x may be a column range of a wider matrix (its stride says so).
void rms_norm_heads(const Context& ctx, MatrixView<float> x, int64_t heads, std::span<const float> w, float eps);

}  // namespace choral::kernels
