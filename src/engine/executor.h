// Stands between the engine's loop and its workers, however many and wherever they are. All that the loop tells them and hears
// from them passes here. Steps cross as values (step_input.h, step_output.h). Adapters' weights are shared in one process. Engine
// thread only, after the load.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/cpu_level.h"
#include "base/status.h"
#include "cache/kv_groups.h"
#include "choral/llm.h"
#include "engine/step_input.h"
#include "engine/step_output.h"
#include "lora/lora_config.h"
#include "lora/readiness.h"
#include "lora/store/packed_adapter.h"
#include "lora/target.h"
#include "models/model.h"

namespace choral::engine {

// What was loaded. Does not change.
struct ExecutorFacts {
  int64_t parameters = 0;
  int64_t weight_bytes = 0;
  std::string weights_digest;  // CheckpointWeights::digest(); empty: they are of no file
  int64_t vocab_size = 0;
  models::Head head = {};
  bool sees_later = false;  // models::Model::sees_later()
  int64_t embedding_size = 0;
  int64_t head_dim = 0;
  int64_t max_model_len = 0;  // what one sequence can have
  cache::KvPoolShape kv_pool;
  int64_t kv_bytes = 0;
  int64_t adapter_bytes = 0;  // the most that adapters may take of the host's memory
  std::string kv_dtype;
  int threads = 0;
  CpuLevel cpu_level = CpuLevel::kBase;
  lora::LoRAConfig lora_config;
  std::span<const lora::LoRATarget> lora_targets;  // live as long as the executor
  std::vector<std::string> notes;
  std::vector<LayerForms> layers;
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual const ExecutorFacts& facts() const = 0;

  // A voice that segments of steps may name from now on, by `key` > 0; or from when it is asked for again and ready, if it comes.
  // Errors as LoRAModelManager::add_adapter(); unavailable: when another was removed it may be asked again.
  virtual Result<lora::Readiness> add_adapter(lora::AdapterKey key, lora::PackedVoice voice) = 0;
  virtual void remove_adapter(lora::AdapterKey key) = 0;
  // Takes in what came to the devices beside the steps, before it is asked for again.
  virtual void take_adapters();
  // Called from any thread when take_adapters() has something to take; once this returns, the one before is not.
  virtual void set_wake(std::function<void()> wake);

  // A request that steps may name from now on, until one drops it. An error is that there is no memory for it.
  virtual Status add_request(const NewRequest& request) = 0;

  // Runs one step; returns when every worker is done. An error is the devices', or there was no memory: nothing of the step can
  // be used, and its requests may only be dropped.
  virtual Status execute_model(const StepInput& input, StepOutput& out) = 0;

  // From now on execute_model() calls `work` while the devices compute what it gave them, maybe several times. False: it never
  // will, since nothing goes on beside it. A step may end, or fail, without a call.
  virtual bool on_wait(std::function<void()> work);

  // Notes of the devices since the last call: fallbacks that came while they ran.
  virtual std::vector<std::string> take_device_notes() = 0;
};

// Where adapters are ready at once.
inline void Executor::take_adapters() {}
inline void Executor::set_wake(std::function<void()>) {}

inline bool Executor::on_wait(std::function<void()>) { return false; }

}  // namespace choral::engine
