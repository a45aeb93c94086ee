// A causal convolution of each channel over the tokens of its sequence, then silu:
//   y[t, c] = silu(bias[c] + Σ_i w[i, c] · x[t - (taps - 1) + i, c])
// in float32, i ascending in one chain of multiply-adds. Rows before the sequence are zeros; those of earlier steps come from its
// slot, which keeps the last taps - 1 rows of x, oldest first: [taps - 1, channels]. An element depends on its own taps alone, so
// neither runs nor threads change its bits (invariant 1). NaN stays with its channel and the rows that see it. Oracle:
// ref/recurrent.h.
#pragma once

#include <span>

#include "kernels/context.h"
#include "kernels/recurrent/state_run.h"
#include "tensor/view.h"

namespace choral::kernels {

struct CausalConv {
  std::span<const float> weight;     // [taps, channels]
  int64_t taps = 0;                  // from 2 to kMostTaps
  std::span<const float> bias = {};  // [channels]; empty: none

  static constexpr int64_t kMostTaps = 16;
  int64_t channels() const { return std::ssize(weight) / taps; }
  int64_t tail_floats() const { return (taps - 1) * channels(); }
};

// x [rows, channels] in place; its rows outside all runs are left alone. tails: at least tail_floats() a slot.
void causal_conv1d(const Context& ctx, const CausalConv& conv, StateView tails, std::span<const StateRun> runs,
                   MatrixView<float> x);

}  // namespace choral::kernels
