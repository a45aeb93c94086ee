// How the tokens of one request are chosen from logits: all that the sampler knows of it besides its tokens. Crosses to the
// worker once, with the request's first step. A value.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "choral/types.h"
#include "kernels/sampling/sampling.h"

namespace choral::engine {

struct SamplingRule {
  kernels::SamplingSettings settings;
  kernels::Penalties penalties;
  uint64_t seed = 0;
  int32_t min_tokens = 0;                  // before so many outputs stop_ids are banned
  std::optional<int32_t> logprobs;         // of the chosen token and so many most likely ones
  std::optional<int32_t> prompt_logprobs;  // the same for each prompt token
  std::vector<int32_t> stop_ids;           // end of sequence (unless ignored) and stop_token_ids
  std::vector<int32_t> allowed_ids;        // empty: all
  std::vector<kernels::TokenBias> bias;
  std::vector<std::vector<int32_t>> bad_words;  // token sequences whose last token is banned after the others
};

// What the parameters say of it by themselves: without seed, bad words, and the model's own stops.
SamplingRule sampling_rule_of(const SamplingParams& params);

}  // namespace choral::engine
