// The ranges of sampling parameters. The error names the first that is out of range, with what it may be. Within the ranges no
// logit of a sound model becomes infinite, and no short request makes an answer that memory cannot hold.
#pragma once

#include <cstdint>

#include "choral/types.h"

namespace choral::engine {

inline constexpr int kMaxCompletions = 128;
inline constexpr float kMostTemperature = 100;
inline constexpr float kLeastRepetitionPenalty = 0.01F;
inline constexpr float kMostRepetitionPenalty = 100;
inline constexpr float kMostAdapterScale = 1000;  // of an adapter in a request, either sign
inline constexpr double kMostTimeoutS = 1e9;      // decades
// Log probabilities of one answer, the chosen tokens' included: 20 a token over 128k tokens, or 50 MiB of JSON a million.
inline constexpr int64_t kMostLogprobs = int64_t{1} << 22;

// Completions that are made, of which n are given.
inline int completions_made(const SamplingParams& params) { return params.best_of > 0 ? params.best_of : params.n; }

// How many there may be, of both.
Status check_completions(const SamplingParams& params);
Status check_sampling(const SamplingParams& params, int32_t vocab);
// Log probabilities that an answer to so long a prompt may hold where each of its n completions tells the prompt's. Needs checked
// parameters; `max_tokens` as the context allows it.
int64_t logprobs_given(const SamplingParams& params, int64_t max_tokens, int64_t prompt_tokens);
// Likewise, of one answer by itself, which has the prompt's once.
Status check_logprobs(const SamplingParams& params, int64_t max_tokens, int64_t prompt_tokens);
Status check_adapter_scale(const AdapterUse& use);
Status check_timeouts(const Request& request);
Status check_most_guessed(int most_guessed);

}  // namespace choral::engine
