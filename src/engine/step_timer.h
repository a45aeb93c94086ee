// Times whole engine steps, scheduler and sampler included, without callers: what `choral bench` prints. Deterministic work,
// greedy. One thread makes and runs it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/step_input_writer.h"
#include "engine/worker.h"
#include "platform/ops/op_profile.h"
#include "sched/scheduler.h"

namespace choral::engine {

struct StepTimerOptions {
  EngineOptions engine;   // `model`, dtypes, threads; limits are widened where a case needs it
  std::string synthetic;  // a name of synthetic_model_names(); then `engine.model` is not read
  DType synthetic_format = DType::kBF16;
};

struct StepTiming {
  int batch = 0;        // sequences in the step
  int tokens = 0;       // rows in the step
  int steps = 0;        // measured
  double median_s = 0;  // of one step
  double best_s = 0;
  double weight_bytes = 0;     // of weights read by one step
  double flops = 0;            // of the matrix products of one step (attention not counted)
  double attention_share = 0;  // of the step's time; measured in steps of their own
  double shrink_share = 0;     // LoRA's, up to the low rank; the rest of it is in the products

  double tokens_per_s() const { return tokens / median_s; }
  double weight_gbps() const { return weight_bytes / median_s * 1e-9; }
  double gflops() const { return flops / median_s * 1e-9; }
};

class StepTimer {
 public:
  static Result<std::unique_ptr<StepTimer>> make(StepTimerOptions options);

  // `batch` sequences with `context` tokens each make one token a step, `steps` times.
  Result<StepTiming> decode(int batch, int context, int steps);
  // One prompt of `tokens` tokens in one step, `repeats` times.
  Result<StepTiming> prefill(int tokens, int repeats);

  // The same for several casts: casts[c][i % size] is the adapter of sequence i (a key of lora_manager(), or the base). Steps of
  // the casts alternate, so that whatever else happens on the machine meets all of them alike. One timing a cast.
  using Cast = std::vector<lora::AdapterKey>;
  Result<std::vector<StepTiming>> decode_casts(int batch, int context, int steps, std::span<const Cast> casts);
  Result<std::vector<StepTiming>> prefill_casts(int tokens, int repeats, std::span<const Cast> casts);

  lora::LoRAModelManager& lora_manager() { return worker_->lora_manager(); }
  const Worker& worker() const { return *worker_; }
  const platform::Context& context() const { return worker_->context(); }
  const std::string& name() const { return name_; }
  double load_s() const { return load_s_; }

 private:
  StepTimer();
  Status add_sequences(sched::Scheduler& scheduler, int count, int prompt, int outputs, const Cast& cast);
  double run_step(sched::Scheduler& scheduler);
  void forget_running(const sched::Scheduler& scheduler);
  void count_weights();
  StepTiming timing(int batch, int tokens, std::vector<double> seconds, const platform::OpProfile& profile,
                    double profiled_s) const;

  std::string name_;
  EngineOptions options_;
  std::unique_ptr<Worker> worker_;
  sched::StepPlan plan_;
  StepInputWriter input_writer_;
  StepOutput output_;
  double load_s_ = 0;
  double layer_weights_ = 0, layer_bytes_ = 0;  // of everything every row passes through
  double head_weights_ = 0, head_bytes_ = 0;    // of the LM head, which only rows with logits pass
  sched::RequestId next_id_ = 1;
  std::vector<std::unique_ptr<sched::Request>> finished_;
};

}  // namespace choral::engine
