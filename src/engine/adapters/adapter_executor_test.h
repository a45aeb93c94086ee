// An executor of adapters alone, for tests of who keeps them: no step can be run. Tests only.
#pragma once

#include "engine/executor.h"
#include "lora/plan/lora_model_manager.h"

namespace choral::engine {

class AdapterExecutor : public Executor {
 public:
  AdapterExecutor(std::span<const lora::LoRATarget> targets, const lora::LoRAConfig& config)
      : manager_(targets, config, kCpuDevice, 8, 64) {}

  const ExecutorFacts& facts() const override { return facts_; }
  Status add_adapter(lora::AdapterKey key, lora::PackedVoice voice) override {
    return manager_.add_adapter(key, std::move(voice));
  }
  void remove_adapter(lora::AdapterKey key) override { manager_.remove_adapter(key); }
  Status execute_model(const StepInput&, StepOutput&) override { return unsupported("this executor has no model"); }
  std::vector<std::string> take_device_notes() override { return {}; }

  const lora::LoRAModelManager& manager() const { return manager_; }

 private:
  ExecutorFacts facts_;
  lora::LoRAModelManager manager_;
};

}  // namespace choral::engine
