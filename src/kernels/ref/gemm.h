// The oracle of every y = x·Wᵀ: plain loops, one output at a time, w as rows of floats. No threads, no blocking, no SIMD.
#pragma once

#include "tensor/view.h"

namespace choral::kernels::ref {

// Exact to double rounding; magnitude[i, j] = Σ_k |x[i, k] · w[j, k]|, what error bounds are made of.
void gemm_double(MatrixView<const float> x, MatrixView<const float> w, MatrixView<double> y, MatrixView<double> magnitude);

// What the float kernels promise bit for bit: one float chain for each output, k = 0, 1, 2, … from 0.
enum class Step {
  kFused,  // acc = fma(x, w, acc): every level with FMA
  kApart,  // acc = round(acc + round(x · w)): CPU level base
};
void gemm_in_order(MatrixView<const float> x, MatrixView<const float> w, Step step, MatrixView<float> y);

}  // namespace choral::kernels::ref
