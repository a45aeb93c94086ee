// The ranges of sampling parameters: the first that is out of range is named with what it may be. Within them no logit that a
// sound model gives becomes infinite, and no short request makes an answer that memory cannot hold.
#pragma once

#include <cstdint>

#include "choral/types.h"

namespace choral::engine {

inline constexpr float kMostTemperature = 100;
inline constexpr float kLeastRepetitionPenalty = 0.01F;
inline constexpr float kMostRepetitionPenalty = 100;
inline constexpr float kMostAdapterScale = 1000;  // of an adapter in a request, either sign
// Log probabilities of one answer, the chosen tokens' included: 20 a token over 128k tokens, or 50 MiB of JSON a million.
inline constexpr int64_t kMostLogprobs = int64_t{1} << 22;

Status check_sampling(const SamplingParams& params, int32_t vocab);
// Needs checked parameters; `max_tokens` as the context allows it.
Status check_logprobs(const SamplingParams& params, int64_t max_tokens, int64_t prompt_tokens);
Status check_adapter_scale(const AdapterUse& use);

}  // namespace choral::engine
