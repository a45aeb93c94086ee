// The oracle of sampling.h: which tokens the filters keep and with what probability, by sorting the whole row, in double.
// Single-threaded.
#pragma once

#include <span>
#include <vector>

#include "kernels/sampling/dry.h"
#include "kernels/sampling/sampled_rows.h"

namespace choral::kernels::ref {

// [vocab]; 0 for a token that is removed. The filters in the order of sampling.h.
std::vector<double> probabilities(std::span<const float> logits, const SamplingSettings& settings);
double log_sum_exp(std::span<const float> logits);
// dry.h's, by looking at every earlier place for itself. [vocab]
std::vector<double> dry_penalties(std::span<const int32_t> tokens, const DrySettings& settings,
                                  std::span<const DryBreaker> breakers, size_t vocab);
// sampled_rows.h's, by sorting and by the probabilities above.
void sample_rows(MatrixView<float> logits, const SampledRows& sampled);

}  // namespace choral::kernels::ref
