// How the tokens of one request are chosen from logits. Besides its tokens the sampler knows no more of a request. It crosses to
// the worker once, with the request's first step. A value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "choral/types.h"
#include "engine/shared_list.h"
#include "kernels/sampling/dry.h"
#include "kernels/sampling/sampling.h"

namespace choral::engine {

// Log-probabilities that a token brings beside its own: of the tokens that are named, or of so many most likely ones.
inline size_t logprobs_beside(std::optional<int32_t> most_likely, std::span<const int32_t> named) {
  return named.empty() ? static_cast<size_t>(std::max(most_likely.value_or(0), 0)) : named.size();
}
inline size_t logprobs_beside(const SamplingParams& params) { return logprobs_beside(params.logprobs, params.logprob_token_ids); }

struct SamplingRule {
  kernels::SamplingSettings settings;
  kernels::Penalties penalties;
  int32_t penalty_last_n = -1;  // tokens that they look at, the last ones; -1: all
  kernels::DrySettings dry;
  SharedList<kernels::DryBreaker> dry_breakers;
  float xtc_probability = 0;  // with settings.xtc_threshold: how often it acts
  uint64_t seed = 0;
  int32_t min_tokens = 0;                  // before so many outputs stop_ids are banned
  std::optional<int32_t> logprobs;         // of the chosen token and so many most likely ones
  std::vector<int32_t> logprob_ids;        // with them: of these in place of the most likely ones
  std::optional<int32_t> prompt_logprobs;  // those of the chosen one and the most likely ones for each prompt token
  std::vector<int32_t> stop_ids;           // end of sequence (unless ignored) and stop_token_ids
  SharedList<int32_t> allowed_ids;         // empty: all
  SharedList<kernels::TokenBias> bias;
  SharedList<std::vector<int32_t>> bad_words;  // token sequences whose last token is banned after the others

  size_t top_count() const { return logprobs_beside(logprobs, logprob_ids); }
};

// Whether it has filters that devices have no form of: such a row is sampled on the host.
bool needs_host(const SamplingRule& rule);

// What the parameters say of it by themselves: without seed, texts, and the model's own stops.
SamplingRule sampling_rule_of(const SamplingParams& params);

}  // namespace choral::engine
