// Plain loops of kernels/recurrent, in double: what its kernels mean.
#pragma once

#include <span>
#include <vector>

#include "kernels/recurrent/causal_conv1d.h"
#include "kernels/recurrent/gated_delta_rule.h"
#include "kernels/recurrent/selective_scan.h"

namespace choral::kernels::ref {

void causal_conv1d(const CausalConv& conv, StateView tails, std::span<const StateRun> runs, MatrixView<float> x);

void gated_delta_rule(const DeltaRule& rule, StateView states, std::span<const StateRun> runs, MatrixView<float> qkv,
                      MatrixView<const float> ba, MatrixView<float> out);

void selective_scan(const SelectiveScan& scan, StateView states, std::span<const StateRun> runs, MatrixView<const float> xbc,
                    MatrixView<const float> dt, MatrixView<float> out);

}  // namespace choral::kernels::ref
