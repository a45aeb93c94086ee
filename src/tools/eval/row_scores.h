// What one row of logits says: of the token that follows in the text, and beside another row of the same place. Pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "base/cpu_level.h"

namespace choral::tools {

struct RowScore {
  float logprob = 0;  // of the token that follows; as prompt_logprobs gives it, to the bit
  int32_t top = -1;   // the most likely token; -1: the row holds what is no number
};

RowScore score_row(CpuLevel level, std::span<const float> logits, int32_t next);

// Σ p·log(p / q) in nats, p the reference's probabilities, q the others; 0 for the same row. Exponentials and sums are in double,
// those that make probabilities of logits too: differences of neighbours such as one model and its rounded self are small.
double kl_divergence(std::span<const float> reference, std::span<const float> logits);

}  // namespace choral::tools
