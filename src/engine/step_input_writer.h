// Turns the scheduler's plan into the worker's StepInput. It knows what the worker was told already of each request, and writes
// the rest. Engine thread.
#pragma once

#include "engine/engine_request.h"
#include "engine/step_input.h"
#include "sched/step_plan.h"

namespace choral::engine {

class StepInputWriter {
 public:
  StepInputWriter(int64_t max_items, int64_t max_tokens) { input_.reserve(max_items, max_tokens); }

  // What the worker must know of the request before its first step; it was told when introduced() says so.
  static NewRequest introduction(EngineRequest& request);
  static void introduced(EngineRequest& request);
  // What the plan, whose requests are EngineRequests that were introduced, means for the worker; valid until the next call. It
  // must reach the worker, or the plan's requests end.
  const StepInput& write(const sched::StepPlan& plan);
  const StepInput& input() const { return input_; }  // as last written
  // The request has ended: the next step lets the worker forget it.
  void forget(const EngineRequest& request);

 private:
  void add(const sched::PlanItem& item);
  void add_state_runs(const sched::PlanItem& item);
  void add_mask(const EngineRequest& request, StepItem& item);  // what the answer's grammar and the end of its thoughts allow

  StepInput input_;
  std::vector<uint64_t> dropped_;
};

}  // namespace choral::engine
