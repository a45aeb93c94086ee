// Log-probabilities as numbers of JSON. Pure.
#pragma once

#include <cmath>

namespace choral::requests {

// JSON has no infinity; OpenAI's and vLLM's servers write -9999 for "impossible".
inline double finite_logprob(float logprob) { return std::isfinite(logprob) ? logprob : -9999.0; }

}  // namespace choral::requests
