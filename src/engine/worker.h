// One device's share of the engine: its threads and scratch, the model's weights, the KV memory, and the runner over them. Made
// in five calls, in this order: make (device), find (weights), plan (memory), pack (weights), initialize_cache (KV, adapters'
// slots). One thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_plan.h"
#include "engine/device_setup.h"
#include "engine/kv_pool.h"
#include "engine/memory_plan.h"
#include "engine/model_loader.h"
#include "engine/model_runner.h"
#include "engine/packed_cache.h"
#include "engine/state_pool.h"

namespace choral::engine {

class Worker {
 public:
  // As many threads as the options say, at least so many, each with its seat.
  static ThreadPlan threads_of(const EngineOptions& options, int least = 1);
  // What the device changes of the options is written to them. `pool`: of a worker whose steps take turns with this one's; null:
  // it makes its own. `place`: of a rank among those of this machine, which have a device each.
  static Result<std::unique_ptr<Worker>> make(EngineOptions& options, const std::string& architecture = "",
                                              std::shared_ptr<ThreadPool> pool = nullptr, int place = 0);

  // Of a model that is divided; before find(). `ranks` outlives it.
  void join(const layers::Ranks& share, platform::Collective& ranks);
  // Adapters come to the device while no step runs, so that they are ready at once; before initialize_cache().
  void write_adapters_between_steps() { writes_beside_ = false; }
  Status find(const io::ConfigMap& config, quant::WeightSource& source, const EngineOptions& options);
  // Whether the model is in a memory of the device's own, beside the machine's.
  Result<bool> has_own_memory() const;
  // Its model's, between find() and pack().
  ModelSizes sizes(const EngineOptions& options) const { return sizes_of(*found_.model, found_.expected_bytes, options); }
  // What is taken of the memory, beside what `draft` takes, is decided and told before a weight is packed.
  Status plan(const ModelSizes& sizes, const EngineOptions& options, const DraftMemory& draft);
  // What all workers of the same model decided.
  void take_plan(const MemoryPlan& memory) { memory_ = memory; }
  Status pack(quant::WeightSource& source, const EngineOptions& options);
  // find(), plan() and pack() of a worker that has the model to itself.
  Status load(const io::ConfigMap& config, quant::WeightSource& source, const EngineOptions& options,
              const DraftMemory& draft = {});
  // Allocates the KV memory that was decided on.
  Status initialize_cache(const EngineOptions& options);

  Status add_request(const NewRequest& request) { return runner_->add_request(request); }
  void leave_answers() { runner_->leave_answers(); }
  void drop_request(uint64_t id) { runner_->drop_request(id); }
  // An error is the device's, whose answers can't be used.
  Status execute_model(const StepInput& input, StepOutput& out) {
    CHORAL_RETURN_IF_ERROR(runner_->execute_model(input, out));
    return packed_file_ != nullptr ? packed_file_->check_unchanged() : Status();
  }
  bool on_wait(std::function<void()> work) { return ctx_.session.on_wait(std::move(work)); }
  lora::LoRAModelManager& lora_manager() { return *lora_manager_; }
  const std::shared_ptr<ThreadPool>& pool() const { return pool_; }

  const lora::LoRAConfig& lora_config() const { return lora_config_; }
  const platform::Context& context() const { return ctx_; }
  // Times every operator into `profile` until it is set to null again.
  void set_profile(platform::OpProfile* profile) { ctx_.profile = profile; }
  const LoadedModel& loaded() const { return loaded_; }
  int64_t kv_bytes() const { return kv_pool_->size_bytes(); }
  // Of the weights, what lies in a file that others may have mapped too.
  int64_t mapped_bytes() const { return packed_file_ != nullptr ? static_cast<int64_t>(packed_file_->size_bytes()) : 0; }
  int64_t max_model_len() const { return memory_.kv.max_model_len; }
  const MemoryPlan& memory() const { return memory_; }
  DType kv_dtype() const { return kv_dtype_; }
  const std::vector<std::string>& notes() const { return notes_; }
  // Notes of the device since it opened: fallbacks that came while it ran.
  std::vector<std::string> take_device_notes();

 private:
  Worker(std::shared_ptr<ThreadPool> pool, DeviceSetup device);
  std::unique_ptr<PackedCache> open_packed_cache(const quant::WeightSource& source, const EngineOptions& options) const;
  Status give_adapters_to_device(const EngineOptions& options);

  std::shared_ptr<ThreadPool> pool_;
  DeviceSetup device_;
  platform::Context ctx_;
  Sha256Digest config_digest_ = {};
  FoundModel found_;  // until it is loaded_
  LoadedModel loaded_;
  std::shared_ptr<const io::SectionFile> packed_file_;  // that weights lie in; null: in memory of their own
  std::optional<KvPool> kv_pool_;
  StatePool state_pool_;  // empty where no layer keeps a state
  std::optional<lora::LoRAModelManager> lora_manager_;
  std::unique_ptr<ModelRunner> runner_;
  lora::LoRAConfig lora_config_;
  DType kv_dtype_ = DType::kF32;
  MemoryPlan memory_;
  bool writes_beside_ = true;  // adapters into the device's memory, where it can
  std::vector<std::string> notes_;
};

}  // namespace choral::engine
