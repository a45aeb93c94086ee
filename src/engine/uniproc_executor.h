// The executor of one worker in this process.
#pragma once

#include <memory>

#include "engine/executor.h"
#include "engine/worker.h"

namespace choral::engine {

class UniprocExecutor : public Executor {
 public:
  // Opens the device, loads the model of `files` and makes room for its KV. What the device changes of the options is written to
  // them. `pool`: Worker::make's; `draft`: what a draft model takes of the memory.
  static Result<std::unique_ptr<UniprocExecutor>> load(EngineOptions& options, const ModelFiles& files,
                                                       std::shared_ptr<ThreadPool> pool = nullptr, const DraftMemory& draft = {});
  // The same for the model of `config` with other weights than its files'.
  static Result<std::unique_ptr<UniprocExecutor>> load(EngineOptions& options, const io::ConfigMap& config,
                                                       quant::WeightSource& weights, const DraftMemory& draft = {});

  const ExecutorFacts& facts() const override { return facts_; }
  Result<lora::Readiness> add_adapter(lora::AdapterKey key, lora::PackedVoice voice) override {
    return worker_->lora_manager().add_adapter(key, std::move(voice));
  }
  void remove_adapter(lora::AdapterKey key) override { worker_->lora_manager().remove_adapter(key); }
  void take_adapters() override { worker_->lora_manager().take_uploaded(); }
  void set_wake(std::function<void()> wake) override { worker_->lora_manager().set_wake(std::move(wake)); }
  Status add_request(const NewRequest& request) override { return worker_->add_request(request); }
  Status execute_model(const StepInput& input, StepOutput& out) override { return worker_->execute_model(input, out); }
  bool on_wait(std::function<void()> work) override { return worker_->on_wait(std::move(work)); }
  std::vector<std::string> take_device_notes() override { return worker_->take_device_notes(); }

  // For those who measure it.
  Worker& worker() { return *worker_; }
  const Worker& worker() const { return *worker_; }

 private:
  UniprocExecutor(std::unique_ptr<Worker> worker, const std::vector<std::string>& notes, std::string weights_digest);

  std::unique_ptr<Worker> worker_;
  ExecutorFacts facts_;
};

}  // namespace choral::engine
