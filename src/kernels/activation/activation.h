// Gated activations of the MLP: y[t, i] = f(x[t, i]) · x[t, inter + i], x [tokens, 2·inter] → y [tokens, inter], float32.
//   silu(a) = a / (1 + e^−a) · gelu(a) = a·Φ(a) by erfc · gelu_tanh(a) = a / (1 + e^−2u), u = √(2/π)(a + 0.044715 a³)
//   sigmoid(a) = 1 / (1 + e^−a), of gates
// An element's result depends on its value only, never on its index: tails run through the same vector code (invariant 1).
// y may be the left half of x itself (same data and stride). NaN stays NaN. Work is divided over ctx.pool. Oracle:
// ref/activation.h.
#pragma once

#include "kernels/context.h"
#include "tensor/view.h"

namespace choral::kernels {

enum class Activation { kSilu, kGelu, kGeluTanh, kSigmoid };

void silu_and_mul(const Context& ctx, MatrixView<const float> x, MatrixView<float> y);
void gelu_and_mul(const Context& ctx, MatrixView<const float> x, MatrixView<float> y);
void gelu_tanh_and_mul(const Context& ctx, MatrixView<const float> x, MatrixView<float> y);
void activation_and_mul(const Context& ctx, Activation f, MatrixView<const float> x, MatrixView<float> y);

// y[t, i] = f(gate[t, i]) · up[t, i] for halves that live apart; y may be gate or up.
void activation_and_mul(const Context& ctx, Activation f, MatrixView<const float> gate, MatrixView<const float> up,
                        MatrixView<float> y);

// gpt-oss's, of a gate and an up beside each other: y[t, i] = (clamp(x[t, 2i + 1], −limit, limit) + 1) · g / (1 + e^(−alpha·g)),
// g = min(x[t, 2i], limit). y is no part of x.
struct ClampedSwiglu {
  float alpha = 1.702f, limit = 7;
};
void swigluoai_and_mul(const Context& ctx, const ClampedSwiglu& form, MatrixView<const float> x, MatrixView<float> y);

}  // namespace choral::kernels
