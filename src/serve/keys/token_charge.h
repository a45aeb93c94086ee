// What requests count against limits of tokens: prompts and answers. Completions that are made to be compared and not given
// (SamplingParams::best_of, and beams) count as well. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "choral/types.h"

namespace choral::serve {

// What the request may use for its own prompt, or for each of `prompts`, before they are tokenised: a token for each four bytes
// of text, and all that the answers may have.
int64_t most_tokens(const Request& request, std::span<const Prompt> prompts, int max_model_len);

// What of that it takes to read the prompts, of each of which nobody counts more than `most_each`.
int64_t tokens_to_read(const Request& request, std::span<const Prompt> prompts, int64_t most_each);

// Answers that are made for one prompt, within what the engine takes, whatever the client asked for.
int64_t answers_made(const SamplingParams& sampling);

// What was computed of an answer so far: nothing before its first step, however long it waited.
int64_t used_tokens(const AnswerFacts& facts);

}  // namespace choral::serve
