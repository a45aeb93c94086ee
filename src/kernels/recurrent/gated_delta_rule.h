// The recurrence of a gated delta net (Qwen3-Next, Qwen3.5). A head keeps a matrix S [key_dim, value_dim]; token by token
//   S = e^g · S;   δ = β · (v - Sᵀk);   S = S + k δᵀ;   y = Sᵀq
// with q and k of length 1 (q then scaled by 1/√key_dim), β = sigmoid(b), g = -decay · softplus(a + dt_bias). A key head serves
// value_heads / key_heads value heads, one after the other.
//
// Always token by token in the order of positions, in float32, for prompts and answers alike: the form by chunks, which is less
// work, rounds otherwise wherever a chunk begins. Sums and the division of work: head_states_inl.h, head_states.h. NaN stays with
// its sequence. Oracle: ref/recurrent.h.
#pragma once

#include <span>

#include "kernels/recurrent/head_states.h"
#include "tensor/view.h"

namespace choral::kernels {

struct DeltaRule {
  int64_t key_heads = 0, value_heads = 0;  // the latter a multiple of the former
  int64_t key_dim = 0, value_dim = 0;
  std::span<const float> decay, dt_bias;  // [value_heads]

  static constexpr float kEps = 1e-6F;  // of the squares of q and of k

  int64_t key_size() const { return key_heads * key_dim; }
  int64_t value_size() const { return value_heads * value_dim; }
  HeadStates states() const { return {value_heads, key_dim, value_dim}; }
};

// qkv [rows, key_size | key_size | value_size]: q and k are normed in place. ba [rows, 2·value_heads]: the b of all heads, then
// their a. out [rows, value_size]. states: those of rule.states() in a slot.
void gated_delta_rule(const Context& ctx, const DeltaRule& rule, StateView states, std::span<const StateRun> runs,
                      MatrixView<float> qkv, MatrixView<const float> ba, MatrixView<float> out);

}  // namespace choral::kernels
