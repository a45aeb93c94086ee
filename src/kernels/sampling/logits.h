// What a model family does to its logits before sampling: soft cap (Gemma 2) and scale. Rows are divided over ctx.pool; in place.
#pragma once

#include "kernels/context.h"
#include "tensor/view.h"

namespace choral::kernels {

// x = cap · tanh(x / cap); cap > 0. NaN stays NaN, ±inf becomes ±cap.
void soft_cap(const Context& ctx, MatrixView<float> x, float cap);

// x = x · scale.
void scale_rows(const Context& ctx, MatrixView<float> x, float scale);

}  // namespace choral::kernels
