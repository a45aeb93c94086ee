// Times whole engine steps, scheduler and sampler included, without callers: what `choral bench` prints. The work is the same
// every time, and greedy. One thread makes and runs it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "choral/llm.h"
#include "engine/step_cycle.h"
#include "engine/uniproc_executor.h"
#include "kernels/machine_peaks.h"

namespace choral::tools {

struct StepTimerOptions {
  EngineOptions engine;                   // `model`, dtypes, threads; limits are widened where a case needs it
  std::string synthetic;                  // the name of a shape; then `engine.model` is not read
  std::string synthetic_format = "bf16";  // of its random weights: a float type or a GGUF block type
};
std::vector<std::string> synthetic_names();

// Where a step's time goes, by operators timed one after the other: on a device each is waited for, so that together they take
// longer than a step.
struct OperatorTime {
  std::string name;
  double calls = 0;  // of one step
  double seconds = 0;
};

struct StepTiming {
  int batch = 0;        // sequences in the step
  int tokens = 0;       // rows in the step
  int steps = 0;        // measured
  double median_s = 0;  // of one step
  double best_s = 0;
  double weight_bytes = 0;                   // of weights read by one step
  double flops = 0;                          // of the matrix products of one step (attention not counted)
  double attention_share = 0;                // of the step's time; measured in steps of their own
  double shrink_share = 0;                   // LoRA's, up to the low rank; on a CPU the rest of it is in the products
  double product_s = 0;                      // of the operators that read those weights
  std::vector<OperatorTime> operators = {};  // the longest first
  double shared_tasks = 0;                   // of one step, that its threads had to meet for
  // Of the median step, what the host did not wait for the device; nothing where the host computes.
  std::optional<double> host_s = {};

  double tokens_per_s() const { return tokens / median_s; }
  double weight_gbps() const { return weight_bytes / median_s * 1e-9; }
  double gflops() const { return flops / median_s * 1e-9; }
};

// The model under the timer, as it was loaded.
struct TimedModel {
  std::string name;
  int64_t parameters = 0;
  int64_t weight_bytes = 0;
  double load_s = 0;
  int64_t max_model_len = 0;
  int64_t kv_bytes = 0, kv_tokens = 0;  // of the KV cache; ModelInfo's
  int64_t adapter_bytes = 0;            // that adapters may take
  int64_t draft_bytes = 0;              // that a draft model would take; it guesses in none of the steps here
  std::string cpu_level;
  int threads = 0;
  std::string device;  // in words; empty: the CPU
  std::vector<std::string> notes;
};

struct AdapterCost {
  double pack_s = 0;
  int64_t packed_bytes = 0;
  int64_t file_bytes = 0;  // of its tensors as stored
};

class StepTimer {
 public:
  static constexpr int kMaxBatch = 256;
  static constexpr int kMaxPrefill = 2048;
  static constexpr int kMaxAdapterRank = 512;

  // The adapter of sequence i is cast[i % size]: a number given to add_adapter(), 0 = the base.
  using Cast = std::vector<int32_t>;
  // `batch` draws from 1 … count, k with weight 1/k; always the same.
  static Cast zipf_cast(int count, int batch);

  static Result<std::unique_ptr<StepTimer>> make(StepTimerOptions options);

  const TimedModel& model() const { return model_; }
  // Whether decode() and prefill() can be asked for these: a batch that does not fit into the KV cache would never decode
  // together.
  Status check_room(std::span<const int> batches, std::span<const int> prefills, int context, int steps) const;
  // Of the model's device, or of the CPU with its threads and level. unsupported: a device that states none.
  Result<kernels::MachinePeaks> measure_peaks();

  // `batch` sequences with `context` tokens each make one token a step, `steps` times. Steps of the casts alternate, so that
  // whatever else happens on the machine meets all of them alike. One timing a cast.
  Result<std::vector<StepTiming>> decode(int batch, int context, int steps, std::span<const Cast> casts);
  // One prompt of `tokens` tokens in one step, `repeats` times; likewise.
  Result<std::vector<StepTiming>> prefill(int tokens, int repeats, std::span<const Cast> casts);

  // A random bf16 adapter on every linear layer, which casts then know as `number`, 1 or more.
  Result<AdapterCost> add_adapter(int32_t number, int rank, uint64_t seed);
  // The same in PEFT's form, in the folder `directory`, which is made.
  Status write_adapter(const std::filesystem::path& directory, int rank, uint64_t seed) const;

 private:
  struct StepTime;
  struct Profiled;

  Status load(StepTimerOptions options);
  Status bring(lora::AdapterKey key, const lora::PackedVoice& voice);
  const engine::Worker& worker() const { return executor_->worker(); }
  Status add_sequences(sched::Scheduler& scheduler, int count, int prompt, int outputs, const Cast& cast);
  StepTime run_step(sched::Scheduler& scheduler);
  void profile_step(sched::Scheduler& scheduler, Profiled& profiled);
  StepTiming timing(int batch, int tokens, const std::vector<StepTime>& steps, const Profiled& profiled) const;

  TimedModel model_;
  std::unique_ptr<engine::UniprocExecutor> executor_;
  std::optional<engine::StepCycle> cycle_;
  sched::RequestId next_id_ = 1;
};

}  // namespace choral::tools
