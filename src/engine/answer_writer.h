// From the tokens of a step to answers: each is appended, detokenised and looked at for an end, and its Response and the
// scheduler are told. Engine thread; a steady-state step allocates nothing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine_request.h"
#include "engine/step_output.h"
#include "sched/scheduler.h"

namespace choral::engine {

class AnswerWriter {
 public:
  // At most `max_tokens` of one request at once. `scheduler` outlives this.
  AnswerWriter(sched::Scheduler& scheduler, Clock clock, int max_tokens);

  // The tokens that a step of `output` gave a running request. Those behind the one that ends the answer are nobody's.
  void commit(EngineRequest& request, const StepOutput& output, std::span<SampledToken> sampled, double now);
  // The embedding that ends a request for one.
  void embed(EngineRequest& request, std::span<const float> embedding);
  void finish(EngineRequest& request, sched::FinishReason reason, std::string stop_reason = "");
  // Of one request; where its answer stopped nobody knows, so nothing is added to it.
  void fail(EngineRequest& request, Status status);

  int64_t generated_tokens() const { return generated_tokens_; }
  int64_t corrupted() const { return corrupted_; }  // answers of which a row of logits held no numbers

 private:
  // How a token ends the answer; kNone: not.
  struct Ending {
    sched::FinishReason reason = sched::FinishReason::kNone;
    std::string stop_reason = {};
  };
  Ending keep_token(EngineRequest& request, const StepOutput& output, const SampledToken& sampled);

  sched::Scheduler& scheduler_;
  Clock clock_;
  std::vector<int32_t> accepted_;  // commit()'s own
  int64_t generated_tokens_ = 0;
  int64_t corrupted_ = 0;
};

}  // namespace choral::engine
