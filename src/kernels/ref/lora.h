// The oracles of lora_matrix.h and lora.h: plain loops in double, one output at a time. `magnitude` is the same sum over absolute
// values, what error bounds are made of.
#pragma once

#include <span>

#include "tensor/view.h"

namespace choral::kernels::ref {

struct LoRASlice {
  int64_t out_begin = 0;
  MatrixView<const float> a;  // [r, in]
  MatrixView<const float> b;  // [out, r]
  float scale = 1.0F;
};

// middle[i, j] = factor · scale · Σ_k a[j, k]·x[i, k], slices' ranks side by side.
void lora_shrink(std::span<const LoRASlice> slices, MatrixView<const float> x, float factor, MatrixView<double> middle,
                 MatrixView<double> magnitude);

struct LoRATerm {
  std::span<const LoRASlice> slices;
  MatrixView<const float> middle;        // [rows, ranks], factor and scale included
  float factor = 1.0F;                   // of the rescaled base and the offset
  std::span<const float> output_factor;  // [out] or empty: 1
  std::span<const float> offset;         // [out] or empty: 0
};

// y = base + Σ over terms: factor · ((f - 1)·base + o) + f·(B·middle)
void lora_expand(std::span<const LoRATerm> terms, MatrixView<const float> base, MatrixView<double> y,
                 MatrixView<double> magnitude);

// result[i, o] = Σ_k stack[indices[i], o, k]·inputs[i, k], nothing for index -1; stack [n, rows, inputs.cols].
void bgmv(MatrixView<const float> inputs, std::span<const float> stack, std::span<const int64_t> indices,
          MatrixView<double> result, MatrixView<double> magnitude);

}  // namespace choral::kernels::ref
