// One step, from the scheduler's queues to each request's tokens: schedule it, send it to the workers as values, compute, hand
// out. The engine's loop uses it, and so do programs that time steps. So it knows no answers: the caller decides what becomes of
// a token. Schedulers may take turns; all their requests are EngineRequests with ids of their own. Engine thread only.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/step_input_writer.h"
#include "sched/scheduler.h"

namespace choral::engine {

// What the step gave one request; views last until the next step.
struct StepGain {
  EngineRequest& request;
  std::span<SampledToken> tokens;
  int32_t guessed = 0;                // of the request's guesses the step computed so many: as many tokens may be void
  int32_t prompt_logprobs_begin = 0;  // the position that the first of them speaks of
  std::span<PositionLogprobs> prompt_logprobs;
  int32_t row_logits_begin = 0;  // the position of the first of these rows
  MatrixView<const float> row_logits;
  std::span<const float> embedding;
};

class StepCycle {
 public:
  StepCycle(Executor& executor, int max_seqs, int max_tokens);

  // Decides what the step computes, and tells the workers of the requests that are new to them. For each that they have no memory
  // for, refuse(EngineRequest&, Status) ends it, and the step is planned without it. False: there is nothing to compute.
  template <class Refuse>
  bool plan(sched::Scheduler& scheduler, Refuse&& refuse);
  const sched::StepPlan& planned() const { return plan_; }

  // Computes it. On an error the step's requests must end (Executor::execute_model).
  Status compute() { return executor_.execute_model(input_writer_.write(plan_), output_); }
  const StepOutput& output() const { return output_; }

  // Counts the step as computed, then calls take(StepGain) for each of its requests that has not ended. Of a request that gains
  // no token what was computed is shared if it is sound; else whoever takes its tokens commits them.
  template <class Take>
  void take_output(sched::Scheduler& scheduler, Take&& take);

  // Calls ended(EngineRequest&) for each request that ended since the last call, which is its last; the workers forget it.
  template <class Ended>
  void take_finished(sched::Scheduler& scheduler, Ended&& ended);
  // The workers forget what runs there: no further step will be of this scheduler.
  void forget_running(const sched::Scheduler& scheduler);

 private:
  Status introduce(EngineRequest& request);
  // How much of the output's lists the items before have.
  struct Taken {
    size_t tokens = 0, prompt_logprobs = 0, row_logits = 0, embeddings = 0;
  };
  // Of the plan's item; what the output has for it counts as taken.
  StepGain gain_of(size_t item, Taken& taken);

  Executor& executor_;
  sched::StepPlan plan_;
  StepInputWriter input_writer_;
  StepOutput output_;
  std::vector<std::unique_ptr<sched::Request>> finished_;
};

template <class Refuse>
bool StepCycle::plan(sched::Scheduler& scheduler, Refuse&& refuse) {
  for (;;) {
    scheduler.schedule(plan_);
    bool all = true;
    for (const auto& item : plan_.items()) {
      auto& request = static_cast<EngineRequest&>(*item.request);
      Status told = request.introduced ? Status() : introduce(request);
      if (told.ok()) continue;
      refuse(request, std::move(told));
      all = false;
    }
    if (all) return !plan_.empty();
    scheduler.abandon(plan_);
  }
}

template <class Take>
void StepCycle::take_output(sched::Scheduler& scheduler, Take&& take) {
  scheduler.on_computed(plan_);
  CHORAL_CHECK(output_.items.size() == plan_.items().size(), "a step answers each of its items");
  Taken taken;
  for (size_t i = 0; i < output_.items.size(); ++i) {
    const StepGain gain = gain_of(i, taken);
    if (gain.request.finished()) continue;
    if (!output_.items[i].is_sound) scheduler.distrust(gain.request);
    if (gain.tokens.empty()) scheduler.share(gain.request);
    take(gain);
  }
}

template <class Ended>
void StepCycle::take_finished(sched::Scheduler& scheduler, Ended&& ended) {
  scheduler.take_finished(finished_);
  for (auto& request : finished_) {
    auto& last = static_cast<EngineRequest&>(*request);
    input_writer_.forget(last);
    for (const auto& follower : last.followers) input_writer_.forget(static_cast<const EngineRequest&>(*follower));
    ended(last);
  }
  finished_.clear();
}

}  // namespace choral::engine
