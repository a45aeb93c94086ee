// Runs one step plan on one model: builds the flat batch once, forwards it, makes the logits of the rows that need them, samples.
// Engine thread; all arrays are reserved for the largest step, so a steady-state step allocates nothing.
#pragma once

#include <vector>

#include "engine/sampler.h"
#include "engine/step_output.h"
#include "lora/plan/lora_model_manager.h"
#include "models/model.h"
#include "sched/step_plan.h"

namespace choral::engine {

class ModelRunner {
 public:
  // A step holds at most `max_tokens` rows of `max_items` requests.
  ModelRunner(const platform::Context& ctx, const models::Model& model, lora::LoRAModelManager& lora, int64_t max_tokens,
              int64_t max_items);

  // The plan's requests are EngineRequests. out.items[i] answers plan.items()[i]. An error is the device's, or there was no
  // memory: nothing of the step can be used.
  Status execute_model(const sched::StepPlan& plan, StepOutput& out);

 private:
  void compute(const sched::StepPlan& plan, StepOutput& out);
  void build_batch(const sched::StepPlan& plan);
  void add_item(const sched::PlanItem& item);
  void sample_next_tokens(const sched::StepPlan& plan, MatrixView<const float> hidden, StepOutput& out);
  void add_prompt_logprobs(const sched::PlanItem& item, MatrixView<const float> hidden);

  const platform::Context& ctx_;
  const models::Model& model_;
  lora::LoRAModelManager& lora_;
  Sampler sampler_;
  int64_t steps_ = 0;

  // The flat batch. [max_tokens] and [max_items]
  layers::ForwardBatch batch_;
  std::vector<int32_t> token_ids_, positions_;
  std::vector<int64_t> kv_slots_;
  std::vector<kernels::AttentionSequence> sequences_;
  // Rows that give a token, with their requests and places.
  std::vector<int32_t> logits_rows_;
  std::vector<EngineRequest*> sampled_requests_;
  std::vector<SampledToken*> sampled_tokens_;
};

}  // namespace choral::engine
