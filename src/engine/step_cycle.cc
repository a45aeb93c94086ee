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

StepGain StepCycle::gain_of(size_t item, Taken& taken) {
  const auto& has = output_.items[item];
  CHORAL_CHECK(has.token_count >= 0 && has.prompt_logprobs_count >= 0 && has.row_logits_count >= 0 && has.row_logits_width >= 0 &&
                   has.embedding_width >= 0,
               "a step's answer holds no less than nothing");
  const auto row_logits = static_cast<size_t>(has.row_logits_count) * static_cast<size_t>(has.row_logits_width);
  CHORAL_CHECK(taken.tokens + static_cast<size_t>(has.token_count) <= output_.tokens.size() &&
                   taken.prompt_logprobs + static_cast<size_t>(has.prompt_logprobs_count) <= output_.prompt_logprobs.size() &&
                   taken.row_logits + row_logits <= output_.row_logits.size() &&
                   taken.embeddings + static_cast<size_t>(has.embedding_width) <= output_.embeddings.size(),
               "a step's answer holds what its items say");
  const StepItem& asked = input_writer_.input().items[item];
  const StepGain gain{static_cast<EngineRequest&>(*planned().items()[item].request),
                      std::span(output_.tokens).subspan(taken.tokens, has.token_count),
                      planned().items()[item].draft_count,
                      asked.prompt_logprobs_begin,
                      std::span(output_.prompt_logprobs).subspan(taken.prompt_logprobs, has.prompt_logprobs_count),
                      asked.first_token + asked.token_count - has.row_logits_count,
                      {output_.row_logits.data() + taken.row_logits, has.row_logits_count, has.row_logits_width},
                      std::span(output_.embeddings).subspan(taken.embeddings, has.embedding_width)};
  taken.tokens += gain.tokens.size();
  taken.prompt_logprobs += gain.prompt_logprobs.size();
  taken.row_logits += row_logits;
  taken.embeddings += gain.embedding.size();
  return gain;
}

void StepCycle::forget_running(const sched::Scheduler& scheduler) {
  for (const auto* request : scheduler.running()) input_writer_.forget(static_cast<const EngineRequest&>(*request));
}

}  // namespace choral::engine
