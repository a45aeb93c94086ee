#include "engine/sampling_rule.h"

#include <utility>

namespace choral::engine {

SamplingRule sampling_rule_of(const SamplingParams& params) {
  SamplingRule rule;
  // Of a share of nothing the most likely token is left.
  rule.settings = {params.top_p > 0 ? params.temperature : 0, params.top_k, params.top_p, params.min_p};
  rule.penalties = {params.repetition_penalty, params.frequency_penalty, params.presence_penalty};
  rule.min_tokens = params.min_tokens;
  rule.logprobs = params.logprobs;
  rule.logprob_ids = params.logprob_token_ids;
  rule.prompt_logprobs = params.prompt_logprobs;
  rule.allowed_ids = params.allowed_token_ids;
  std::vector<kernels::TokenBias> biases;
  biases.reserve(params.logit_bias.size());
  for (const auto& [id, bias] : params.logit_bias) biases.push_back({id, bias});
  rule.bias = std::move(biases);
  return rule;
}

}  // namespace choral::engine
