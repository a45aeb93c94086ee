#include "engine/beam_search/beam_group.h"

#include <algorithm>

#include "engine/engine_request.h"

namespace choral::engine {
namespace {

EngineRequest& member_of(EngineRequest& leader, int32_t beam) {
  return beam == 0 ? leader : static_cast<EngineRequest&>(*leader.followers[static_cast<size_t>(beam) - 1]);
}

}  // namespace

BeamGroup::BeamGroup(BeamRule rule, std::shared_ptr<const text::Tokenizer> tokenizer, OutputTextOptions text)
    : search_(std::move(rule)), tokenizer_(std::move(tokenizer)), text_(std::move(text)) {}

int32_t BeamGroup::take(sched::Scheduler& scheduler, EngineRequest& member, std::span<const kernels::TokenLogprob> likeliest) {
  EngineRequest& leader = member.answering();
  if (leader.preemption_count != preemptions_) {
    preemptions_ = leader.preemption_count;
    followers_wait_ = true;
    search_.forget_offers();
  }
  search_.offer(member.index, likeliest);
  member.sits_out = true;
  if (std::exchange(followers_wait_, false)) {
    for (int32_t beam = 1; beam < search_.beams(); ++beam) scheduler.join(member_of(leader, beam));
  }
  if (!search_.all_offered()) return 0;
  tokens_.clear();
  for (int32_t beam = 0; beam < search_.beams(); ++beam) tokens_.push_back(member_of(leader, beam).output());
  const auto steps = search_.advance(tokens_);
  ended_ = steps.empty();
  if (!ended_) go_on(scheduler, leader, steps);
  return search_.rule().width;
}

void BeamGroup::go_on(sched::Scheduler& scheduler, EngineRequest& leader, std::span<const BeamSearch::Step> steps) {
  branches_.clear();
  for (int32_t beam = 0; beam < std::ssize(steps); ++beam) {
    const BeamSearch::Step& step = steps[static_cast<size_t>(beam)];
    branches_.push_back({&member_of(leader, step.from), step.token});
    EngineRequest& member = member_of(leader, beam);
    if (step.from != beam) member.told_tokens = std::min(member.told_tokens, leader.prompt_count);  // its answer is another's
  }
  scheduler.branch(leader, branches_);
}

std::vector<Completion> BeamGroup::best(const SamplingParams& params) const {
  std::vector<Completion> best;
  for (const auto& answer : search_.answers().first(static_cast<size_t>(params.n))) {
    best.push_back(completion_of(answer, params));
    best.back().index = static_cast<int>(best.size()) - 1;
  }
  return best;
}

Completion BeamGroup::completion_of(const BeamSearch::Answer& answer, const SamplingParams& params) const {
  Completion out;
  OutputText text(tokenizer_, text_, answer.tokens.size());
  const bool shows_last = !answer.is_stopped || params.include_stop_str_in_output;
  for (const int32_t token : std::span(answer.tokens).first(answer.tokens.size() - (shows_last ? 0 : 1))) text.push(token);
  text.finish();
  out.text = text.take_released();
  out.cumulative_logprob = answer.logprob;
  out.beam_score = answer.score;
  out.finish_reason = answer.is_stopped ? FinishReason::kStop : FinishReason::kLength;
  const int32_t last = answer.tokens.back();
  const auto& own_stops = params.stop_token_ids;
  out.stopped_by_token = answer.is_stopped && std::find(own_stops.begin(), own_stops.end(), last) != own_stops.end();
  if (out.stopped_by_token) out.stop_reason = std::to_string(last);
  out.token_ids = answer.tokens;
  return out;
}

}  // namespace choral::engine
