#include "engine/step_cycle.h"

namespace choral::engine {

StepCycle::StepCycle(Executor& executor, int max_seqs, int max_tokens)
    : executor_(executor), input_writer_(max_seqs, max_tokens) {
  plan_.reserve(max_seqs);
  output_.reserve(max_seqs);
  finished_.reserve(static_cast<size_t>(max_seqs));
}

void StepCycle::forget_running(const sched::Scheduler& scheduler) {
  for (const auto* request : scheduler.running()) input_writer_.forget(static_cast<const EngineRequest&>(*request));
}

}  // namespace choral::engine
