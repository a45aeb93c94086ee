// The oracle of sampling.h: which tokens the filters keep and with what probability, by sorting the whole row, in double.
// Single-threaded.
#pragma once

#include <span>
#include <vector>

#include "kernels/sampling/sampled_rows.h"

namespace choral::kernels::ref {

// [vocab]; 0 for a token that is removed. Temperature, min_p, top_k and top_p in this order.
std::vector<double> probabilities(std::span<const float> logits, const SamplingSettings& settings);
double log_sum_exp(std::span<const float> logits);
// sampled_rows.h's, by sorting and by the probabilities above.
void sample_rows(MatrixView<float> logits, const SampledRows& sampled);

}  // namespace choral::kernels::ref
