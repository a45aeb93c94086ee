// What a request counts against limits of tokens: prompt and answers. Completions that are made to be compared and not given
// (SamplingParams::best_of) count as well. Pure.
#pragma once

#include <cstdint>

#include "choral/types.h"

namespace choral::serve {

// Completions that are computed; within what the engine takes, whatever the client asked for.
int completions_charged(const SamplingParams& sampling);

// At most, before the prompt is tokenised.
int64_t most_tokens(const Request& request, int max_model_len);

// Of an answer that has ended. How long those were that are not given nobody can say: each counts as the longest given one.
int64_t used_tokens(const RequestOutput& output, int completions);

}  // namespace choral::serve
