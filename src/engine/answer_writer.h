// Turns the tokens of a step into answers, in two halves. The first half is done at once, because the next step depends on it:
// whether a token ends the answer, and the scheduler's count. The second takes longer and waits for hand_out(), so that a device
// need not wait for it: text on which nothing depends, the Response, telling its readers. An answer that ends has all that came
// before. Engine thread; a steady-state step allocates nothing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/answer_ending.h"
#include "engine/engine_request.h"
#include "engine/step_output.h"
#include "sched/scheduler.h"

namespace choral::engine {

class AnswerWriter {
 public:
  // Of so many running requests, and at most as many tokens of one at once. `scheduler` outlives this.
  AnswerWriter(sched::Scheduler& scheduler, Clock clock, int max_num_seqs);

  // The tokens that a step of `output` gave a running request, which is told of them by hand_out(). Those behind the one that
  // ends the answer are dropped, and so are those behind one of the `guessed` guesses of the step that was wrong. Says how many
  // were right.
  int32_t commit(EngineRequest& request, const StepOutput& output, std::span<SampledToken> sampled, int32_t guessed, double now);
  // The same where the request is a beam of an answer, whose next tokens are known when each of its beams came here.
  void offer(EngineRequest& beam, const StepOutput& output, SampledToken& sampled, double now);
  // What the grammar of a running request says of its last token, where that is known only after commit(); an error ends it.
  void settle(EngineRequest& request, Status status);
  // What ends a request for an embedding or for classes.
  void give_pooled(EngineRequest& request, std::span<const float> values);
  void finish(EngineRequest& request, sched::FinishReason reason) { finish(request, AnswerEnding{reason}); }
  // Of one request, or of the answer that it is a beam of. Where its answer stopped is not known, so nothing is added to it.
  void fail(EngineRequest& member, Status status);

  // Writes and tells what waits. One whose answer there is no memory for fails, a step with it under way or not.
  void hand_out();

  int64_t generated_tokens() const { return generated_tokens_; }
  int64_t corrupted() const { return corrupted_; }  // answers of which a row of logits held no numbers

 private:
  // What waits for hand_out(): readers to be told and, unless it was written already, a token.
  struct News {
    EngineRequest* request = nullptr;
    int32_t token = kWritten;
    float logprob = 0;
  };
  static constexpr int32_t kWritten = -1;
  void finish(EngineRequest& request, AnswerEnding ending);
  AnswerEnding keep_token(EngineRequest& request, const StepOutput& output, const SampledToken& sampled);
  void end(EngineRequest& request, sched::FinishReason reason);
  static void write(const News& news);
  void write_news_of(const EngineRequest& request);

  sched::Scheduler& scheduler_;
  Clock clock_;
  std::vector<int32_t> accepted_;  // commit()'s own
  std::vector<News> news_;
  std::vector<News> handed_;  // hand_out()'s own
  int64_t generated_tokens_ = 0;
  int64_t corrupted_ = 0;
};

}  // namespace choral::engine
