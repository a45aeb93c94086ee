#include "engine/step_cycle.h"

#include "engine/spare_memory.h"

namespace choral::engine {

StepCycle::StepCycle(Executor& executor, int max_seqs, int max_tokens)
    : executor_(executor), input_writer_(max_seqs, max_tokens) {
  plan_.reserve(max_seqs);
  output_.reserve(max_seqs);
  finished_.reserve(max_seqs);
}

Status StepCycle::introduce(EngineRequest& request) {
  CHORAL_RETURN_IF_ERROR(or_out_of_memory("the request cannot be begun",
                                          [&] { return executor_.add_request(StepInputWriter::introduction(request)); }));
  StepInputWriter::introduced(request);
  return {};
}

StepGain StepCycle::gain_of(size_t item, size_t& tokens_taken, size_t& prompt_logprobs_taken) {
  const auto& [token_count, prompt_logprobs_count] = output_.items[item];
  CHORAL_CHECK(token_count >= 0 && tokens_taken + static_cast<size_t>(token_count) <= output_.tokens.size() &&
                   prompt_logprobs_count >= 0 &&
                   prompt_logprobs_taken + static_cast<size_t>(prompt_logprobs_count) <= output_.prompt_logprobs.size(),
               "a step's answer holds what its items say");
  const StepGain gain{static_cast<EngineRequest&>(*planned().items()[item].request),
                      std::span(output_.tokens).subspan(tokens_taken, token_count),
                      input_writer_.input().items[item].prompt_logprobs_begin,
                      std::span(output_.prompt_logprobs).subspan(prompt_logprobs_taken, prompt_logprobs_count)};
  tokens_taken += gain.tokens.size();
  prompt_logprobs_taken += gain.prompt_logprobs.size();
  return gain;
}

void StepCycle::forget_running(const sched::Scheduler& scheduler) {
  for (const auto* request : scheduler.running()) input_writer_.forget(static_cast<const EngineRequest&>(*request));
}

}  // namespace choral::engine
