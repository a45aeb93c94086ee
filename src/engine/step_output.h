// What one step gives back: for each item of the plan that wanted it, a token and its log-probabilities.
// Reused every step; room is reserved for the largest batch.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernels/sampling/sampling.h"

namespace choral::engine {

struct SampledToken {
  int32_t token = -1;  // -1: none was wanted, or `status` says why it failed
  float logprob = 0;
  std::vector<kernels::TokenLogprob> top;  // as many as the request asked for
  Status status;
};

struct StepOutput {
  std::vector<SampledToken> items;  // one for each item of the plan
};

}  // namespace choral::engine
