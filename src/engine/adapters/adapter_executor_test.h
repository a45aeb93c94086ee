// An executor of adapters alone, for tests of who keeps them: no step can be run. Tests only.
#pragma once

#include <limits>
#include <map>

#include "base/check.h"
#include "engine/executor.h"

namespace choral::engine {

class AdapterExecutor : public Executor {
 public:
  const ExecutorFacts& facts() const override { return facts_; }
  Result<lora::Readiness> add_adapter(lora::AdapterKey key, lora::PackedVoice voice) override {
    if (voices_.size() == most_voices) return resource_exhausted("the device takes no more");
    const bool added = voices_.emplace(key, std::move(voice)).second;
    CHORAL_CHECK(added, "a voice is registered twice");
    return lora::Readiness::kReady;
  }
  void remove_adapter(lora::AdapterKey key) override { voices_.erase(key); }
  Status add_request(const NewRequest&) override { return unsupported("this executor has no model"); }
  Status execute_model(const StepInput&, StepOutput&) override { return unsupported("this executor has no model"); }
  std::vector<std::string> take_device_notes() override { return {}; }

  const std::map<lora::AdapterKey, lora::PackedVoice>& voices() const { return voices_; }
  size_t most_voices = std::numeric_limits<size_t>::max();

 private:
  ExecutorFacts facts_;
  std::map<lora::AdapterKey, lora::PackedVoice> voices_;
};

}  // namespace choral::engine
