// Plain loops of kernels/recurrent/gated_delta_rule.h and causal_conv1d.h, in double: what they mean.
#pragma once

#include <span>
#include <vector>

#include "kernels/recurrent/causal_conv1d.h"
#include "kernels/recurrent/gated_delta_rule.h"

namespace choral::kernels::ref {

void causal_conv1d(const CausalConv& conv, StateView tails, std::span<const StateRun> runs, MatrixView<float> x);

void gated_delta_rule(const DeltaRule& rule, StateView states, std::span<const StateRun> runs, MatrixView<float> qkv,
                      MatrixView<const float> ba, MatrixView<float> out);

}  // namespace choral::kernels::ref
