// The recurrence of a Mamba-2 layer (Granite 4). A head keeps a matrix S [state_dim, head_dim]; token by token
//   Δ = clamp(softplus(dt + dt_bias), least, most);   S = e^(-decay·Δ) · S + B (Δ·x)ᵀ;   y = SᵀC + skip · x
// with decay = e^A_log. A group's B and C serve heads / groups heads, one after the other.
//
// Token by token in the order of positions, as the gated delta rule, with the same blocks and sums (head_states.h). NaN stays
// with its sequence. Oracle: ref/recurrent.h.
#pragma once

#include <limits>
#include <span>

#include "kernels/recurrent/head_states.h"
#include "tensor/view.h"

namespace choral::kernels {

struct SelectiveScan {
  int64_t groups = 0, heads = 0;  // the latter a multiple of the former
  int64_t state_dim = 0, head_dim = 0;
  std::span<const float> decay, dt_bias, skip;  // [heads]
  float least_step = 0, most_step = std::numeric_limits<float>::infinity();

  int64_t group_size() const { return groups * state_dim; }
  int64_t value_size() const { return heads * head_dim; }
  HeadStates states() const { return {heads, state_dim, head_dim}; }
};

// xbc [rows, value_size | group_size | group_size], dt [rows, heads], out [rows, value_size]. states: those of scan.states() in a
// slot.
void selective_scan(const Context& ctx, const SelectiveScan& scan, StateView states, std::span<const StateRun> runs,
                    MatrixView<const float> xbc, MatrixView<const float> dt, MatrixView<float> out);

}  // namespace choral::kernels
