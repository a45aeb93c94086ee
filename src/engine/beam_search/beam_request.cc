#include "engine/beam_search/beam_request.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/status.h"
#include "engine/sampling_check.h"

namespace choral::engine {

Status check_beams(const Request& request, const SamplingParams& p) {
  if (!p.beams.wanted) return {};
  struct Refused {
    std::string_view name;
    bool is_given;
    std::string_view way_out = "leave it out";
  };
  const std::array refused{
      Refused{"repetition_penalty", p.repetition_penalty != 1 && p.penalty_last_n != 0, "send 1"},
      Refused{"presence_penalty", p.presence_penalty != 0 && p.penalty_last_n != 0, "send 0"},
      Refused{"frequency_penalty", p.frequency_penalty != 0 && p.penalty_last_n != 0, "send 0"},
      Refused{"dry_multiplier", p.dry_multiplier != 0, "send 0"},
      Refused{"logit_bias", !p.logit_bias.empty() || !p.logit_bias_texts.empty()},
      Refused{"allowed_token_ids", !p.allowed_token_ids.empty()},
      Refused{"bad_words", !p.bad_words.empty()},
      Refused{"stop", !p.stop.empty(), "send stop_token_ids"},
      Refused{"logprobs", p.logprobs.has_value(), "leave it out; each answer has the sum of its log-probabilities"},
      Refused{"prompt_logprobs", p.prompt_logprobs.has_value()},
      Refused{"structured output (response_format, structured_outputs, a tool that must be called)",
              request.structured_output.kind != StructuredOutput::Kind::kNone},
      Refused{"a limit of thoughts (thinking_budget)", request.thought_limit.max_tokens >= 0},
      Refused{"continue_token_ids", !request.given.empty()},
  };
  const auto* const found = std::find_if(refused.begin(), refused.end(), [](const Refused& field) { return field.is_given; });
  if (found != refused.end())
    return unsupported("{} is not served with beam search (use_beam_search): {}", found->name, found->way_out);
  if (p.stop_token_ids.size() > kMostBeamStops / 2) {
    return too_large("stop_token_ids has {} entries; at most {} are allowed with beam search", p.stop_token_ids.size(),
                     kMostBeamStops / 2);
  }
  return {};
}

Result<BeamRule> beam_rule_of(const SamplingParams& params, std::vector<int32_t> stop_ids, int32_t vocab) {
  std::sort(stop_ids.begin(), stop_ids.end());
  stop_ids.erase(std::unique(stop_ids.begin(), stop_ids.end()), stop_ids.end());
  if (stop_ids.size() > kMostBeamStops) {
    return unsupported("beam search with {} tokens that end an answer; at most {} are served: send fewer stop_token_ids",
                       stop_ids.size(), kMostBeamStops);
  }
  BeamRule rule{.width = completions_made(params),
                .length_penalty = params.beams.length_penalty,
                .early_stopping = params.beams.early_stopping,
                .min_tokens = params.min_tokens,
                .max_tokens = 0,
                .stop_ids = std::move(stop_ids)};
  if (rule.offered() > vocab) {
    return invalid_argument("{} beams need {} tokens to choose from, and the model has {}; send a smaller beam_width", rule.width,
                            rule.offered(), vocab);
  }
  return rule;
}

SamplingRule beam_sampling(const BeamRule& rule) {
  SamplingRule sampling;
  sampling.settings.temperature = 0;
  sampling.logprobs = rule.offered();
  return sampling;
}

void add_beams(BeamRule rule, std::shared_ptr<const text::Tokenizer> tokenizer, const OutputTextOptions& text,
               EngineRequest& leader) {
  rule.max_tokens = leader.max_tokens;
  for (int i = 1; i < rule.width; ++i) {
    auto beam = std::make_unique<EngineRequest>(SamplingParams(), OutputText(nullptr, {}, 0));
    beam->id = leader.id + static_cast<uint64_t>(i);
    beam->index = i;
    beam->rule = leader.rule;
    leader.followers.push_back(std::move(beam));
  }
  leader.guesser.set_most(0);  // beams go on from one another
  leader.beams = std::make_unique<BeamGroup>(std::move(rule), std::move(tokenizer), text);
}

}  // namespace choral::engine
