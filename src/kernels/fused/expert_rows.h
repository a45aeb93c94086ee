// The rows of a mixture of experts: each of a token's top_k experts gives it a slot, and slots sorted by expert are the rows on
// which experts work, those of one expert side by side. Then the way back, from rows to tokens.
// A token's result depends on its own slots and their order only, never on which tokens share its experts (invariant 1).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "tensor/view.h"

namespace choral::kernels {

struct ExpertRows {
  std::span<int32_t> tokens;  // [rows], ascending among the rows of an expert
  std::span<int64_t> ends;    // [experts]: expert e has rows [ends[e - 1], ends[e])
  std::span<int32_t> places;  // [tokens · top_k]: the row of slot s of token t is places[t · top_k + s]
};

// ids [tokens, top_k], each in [0, experts). In `scratch`.
ExpertRows sort_by_expert(MatrixView<const int32_t> ids, int64_t experts, Arena& scratch);

// y[t] = (y[t] +) Σ_s weights[t, s] · x[places[t · top_k + s]], in order of s, one fma each. weights [tokens, top_k],
// x [tokens · top_k, n], y [tokens, n]. Work is divided over ctx.pool.
void combine_experts(const Context& ctx, MatrixView<const float> x, std::span<const int32_t> places,
                     MatrixView<const float> weights, bool add, MatrixView<float> y);

}  // namespace choral::kernels
