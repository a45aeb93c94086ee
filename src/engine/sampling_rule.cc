#include "engine/sampling_rule.h"

namespace choral::engine {

bool needs_host(const SamplingRule& rule) {
  return rule.settings.temperature >= kernels::kGreedyTemperature &&
         (rule.settings.typical_p < 1 || rule.settings.top_n_sigma > 0 || rule.xtc_probability > 0);
}

SamplingRule sampling_rule_of(const SamplingParams& params) {
  SamplingRule rule;
  // Of a share of nothing the most likely token is left.
  rule.settings = {.temperature = params.top_p > 0 ? params.temperature : 0,
                   .top_k = params.top_k,
                   .top_p = params.top_p,
                   .min_p = params.min_p,
                   .top_n_sigma = params.top_n_sigma,
                   .typical_p = params.typical_p,
                   .xtc_threshold = params.xtc_threshold};
  rule.xtc_probability = params.xtc_threshold > 0.5F ? 0 : params.xtc_probability;
  rule.penalties = {params.repetition_penalty, params.frequency_penalty, params.presence_penalty};
  rule.penalty_last_n = params.penalty_last_n;
  rule.dry = {params.dry_multiplier, params.dry_base, params.dry_allowed_length, params.dry_penalty_last_n};
  rule.min_tokens = params.min_tokens;
  rule.logprobs = params.logprobs;
  rule.logprob_ids = params.logprob_token_ids;
  rule.prompt_logprobs = params.prompt_logprobs;
  rule.allowed_ids = params.allowed_token_ids;
  return rule;
}

}  // namespace choral::engine
