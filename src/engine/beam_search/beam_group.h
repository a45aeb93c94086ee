// The beams of one answer while they run: requests of the scheduler, of which the leader is the one that was asked for and beam
// 0, and its followers the others. All compute their last token, each sits out from then on until the last one is done; then the
// search says how they go on. A group that gave way begins its round again, with the leader. Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "choral/types.h"
#include "engine/beam_search/beam_search.h"
#include "engine/output_text.h"
#include "sched/scheduler.h"

namespace choral::engine {

struct EngineRequest;

class BeamGroup {
 public:
  // The texts of answers are the tokenizer's, as the options say.
  BeamGroup(BeamRule rule, std::shared_ptr<const text::Tokenizer> tokenizer, OutputTextOptions text);

  // A step gave the member these likeliest tokens behind its own. Says how many tokens the beams gained together.
  int32_t take(sched::Scheduler& scheduler, EngineRequest& member, std::span<const kernels::TokenLogprob> likeliest);
  bool ended() const { return ended_; }
  // The best answers, once it has ended, in order.
  std::vector<Completion> best(const SamplingParams& params) const;

 private:
  void go_on(sched::Scheduler& scheduler, EngineRequest& leader, std::span<const BeamSearch::Step> steps);
  Completion completion_of(const BeamSearch::Answer& answer, const SamplingParams& params) const;

  BeamSearch search_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  OutputTextOptions text_;
  bool followers_wait_ = true;  // they have not joined since the group began to run
  int32_t preemptions_ = 0;     // the leader's, when it offered last
  bool ended_ = false;
  std::vector<std::span<const int32_t>> tokens_;  // take()'s own, as what follows
  std::vector<sched::Scheduler::Branch> branches_;
};

}  // namespace choral::engine
