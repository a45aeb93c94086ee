// A worker to which every step goes as bytes, and whose answer comes back so. Tests only.
#pragma once

#include "engine/assembled_engine_test.h"
#include "engine/ranks/step_bytes.h"

namespace choral::engine {

class BytesExecutor : public Executor {
 public:
  explicit BytesExecutor(std::unique_ptr<Executor> far) : far_(std::move(far)) {}

  const ExecutorFacts& facts() const override { return far_->facts(); }
  Result<lora::Readiness> add_adapter(lora::AdapterKey key, lora::PackedVoice voice) override {
    return far_->add_adapter(key, std::move(voice));
  }
  void remove_adapter(lora::AdapterKey key) override { far_->remove_adapter(key); }
  void take_adapters() override { far_->take_adapters(); }
  void set_wake(std::function<void()> wake) override { far_->set_wake(std::move(wake)); }
  bool on_wait(std::function<void()> work) override { return far_->on_wait(std::move(work)); }
  std::vector<std::string> take_device_notes() override { return far_->take_device_notes(); }
  Status add_request(const NewRequest& request) override {
    NewRequest received;
    CHORAL_CHECK(from_bytes(to_bytes(request), received), "a request is read as it was written");
    return far_->add_request(received);
  }
  Status execute_model(const StepInput& input, StepOutput& out) override {
    StepInput received;
    CHORAL_CHECK(from_bytes(to_bytes(input), received), "a step input is read as it was written");
    StepOutput answer;
    const Status status = far_->execute_model(received, answer);
    CHORAL_CHECK(from_bytes(to_bytes(answer), out), "a step output is read as it was written");
    return status;
  }

 private:
  std::unique_ptr<Executor> far_;
};

inline std::unique_ptr<Executor> over_bytes(EngineOptions& options, const ModelFiles& files) {
  return std::make_unique<BytesExecutor>(AssembledEngine::one_worker(options, files));
}

}  // namespace choral::engine
