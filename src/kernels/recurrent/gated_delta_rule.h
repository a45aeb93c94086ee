// The recurrence of a gated delta net (Qwen3-Next, Qwen3.5). A head keeps a matrix S [key_dim, value_dim]; token by token
//   S = e^g · S;   δ = β · (v - Sᵀk);   S = S + k δᵀ;   y = Sᵀq
// with q and k of length 1 (q then scaled by 1/√key_dim), β = sigmoid(b), g = -decay · softplus(a + dt_bias). A key head serves
// value_heads / key_heads value heads, one after the other.
//
// Always token by token in the order of positions, in float32, for prompts and answers alike: the form by chunks, which is less
// work, rounds otherwise wherever a chunk begins. Each element of Sᵀk and Sᵀq is four chains of multiply-adds, which take turns
// over the keys and are added in pairs. Work is divided by heads and value columns, so that a state stays in a core's
// cache while the tokens of a step run over it. Neither runs nor threads change a bit (invariant 1). NaN stays with its sequence.
// Oracle: ref/gated_delta_rule.h.
#pragma once

#include <algorithm>
#include <span>

#include "kernels/context.h"
#include "kernels/recurrent/state_run.h"
#include "tensor/view.h"

namespace choral::kernels {

struct DeltaRule {
  int64_t key_heads = 0, value_heads = 0;  // the latter a multiple of the former
  int64_t key_dim = 0, value_dim = 0;
  std::span<const float> decay, dt_bias;  // [value_heads]

  static constexpr float kEps = 1e-6F;  // of the squares of q and of k

  int64_t key_size() const { return key_heads * key_dim; }
  int64_t value_size() const { return value_heads * value_dim; }
  int64_t state_floats() const { return value_size() * key_dim; }

  // A head's state lies in blocks of so many value columns (the last may be narrower), each [key_dim, columns]: what a task works
  // on is one piece.
  static constexpr int64_t kBlockColumns = 32;
  int64_t block_begin(int64_t head, int64_t column) const { return (head * value_dim + column) * key_dim; }
  int64_t block_columns(int64_t column) const { return std::min(kBlockColumns, value_dim - column); }
};

// qkv [rows, key_size | key_size | value_size]: q and k are normed in place. ba [rows, 2·value_heads]: the b of all heads, then
// their a. out [rows, value_size]. states: state_floats() a slot.
void gated_delta_rule(const Context& ctx, const DeltaRule& rule, StateView states, std::span<const StateRun> runs,
                      MatrixView<float> qkv, MatrixView<const float> ba, MatrixView<float> out);

}  // namespace choral::kernels
