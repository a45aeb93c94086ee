// An engine whose steps begin when the test lets them, so a test knows a request's phase when something happens to it. One that
// stands for a device asks the gate again within each step, when the engine had its moment for other work. Tests only.
#pragma once

#include <condition_variable>
#include <mutex>

#include "engine/assembled_engine_test.h"

namespace choral::engine {

class StepGate {
 public:
  // The test's.
  void allow(int steps) {
    const std::lock_guard lock(mutex_);
    allowed_ += steps;
    changed_.notify_all();
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  // Until the engine has asked for so many steps: all before the last are done, and the last waits unless it was allowed.
  void wait_for_asked(int steps) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_ >= steps; });
  }
  int asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  // The executor's.
  void pass() {
    std::unique_lock lock(mutex_);
    ++asked_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_open_ || asked_ <= allowed_; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int asked_ = 0, allowed_ = 0;
  bool is_open_ = false;
};

class GatedExecutor : public Executor {
 public:
  GatedExecutor(std::unique_ptr<Executor> far, StepGate& gate, bool is_device = false)
      : far_(std::move(far)), gate_(gate), is_device_(is_device) {}

  const ExecutorFacts& facts() const override { return far_->facts(); }
  Result<lora::Readiness> add_adapter(lora::AdapterKey key, lora::PackedVoice voice) override {
    return far_->add_adapter(key, std::move(voice));
  }
  void remove_adapter(lora::AdapterKey key) override { far_->remove_adapter(key); }
  void take_adapters() override { far_->take_adapters(); }
  void set_wake(std::function<void()> wake) override { far_->set_wake(std::move(wake)); }
  std::vector<std::string> take_device_notes() override { return far_->take_device_notes(); }
  bool on_wait(std::function<void()> work) override {
    other_work_ = std::move(work);
    return is_device_;
  }
  Status add_request(const NewRequest& request) override { return far_->add_request(request); }
  Status execute_model(const StepInput& input, StepOutput& out) override {
    gate_.pass();
    if (is_device_) {
      other_work_();
      gate_.pass();
    }
    return far_->execute_model(input, out);
  }

 private:
  std::unique_ptr<Executor> far_;
  StepGate& gate_;
  const bool is_device_;
  std::function<void()> other_work_;
};

// The gate opens before the engine ends.
class GatedEngine {
 public:
  explicit GatedEngine(const EngineOptions& options, Clock clock = now_s, bool is_device = false)
      : engine_(
            options,
            [this, is_device](EngineOptions& given, const ModelFiles& files) {
              return std::make_unique<GatedExecutor>(AssembledEngine::one_worker(given, files), gate_, is_device);
            },
            std::move(clock)) {}
  ~GatedEngine() { gate_.open(); }

  AdmittedRequest read(Request request) { return engine_.read(std::move(request)); }
  std::vector<AdmittedRequest> read_each(Request request, std::vector<Prompt> prompts) {
    return engine_.read_each(std::move(request), std::move(prompts));
  }
  struct Submitted {
    std::shared_ptr<Response> response;
    std::list<sched::RequestId> ids;
  };
  Submitted submit(Request request) {
    auto admitted = read(std::move(request));
    Submitted submitted{admitted.response, {}};
    for (const auto& completion : admitted.completions) submitted.ids.push_back(completion->id);
    const auto taken = core().add_requests({&admitted, 1});
    CHORAL_CHECK(taken.ok(), taken.status().message());
    return submitted;
  }
  void cancel(const Submitted& leaver) {
    auto ids = leaver.ids;
    core().cancel(ids);
  }
  // The loop has turned; no step may be waiting for the gate then.
  void turn() {
    const Status turned = core().check_health(std::chrono::minutes(5));
    CHORAL_CHECK(turned.ok(), turned.message());
  }
  EngineCore& core() { return engine_.core(); }
  StepGate& gate() { return gate_; }
  EngineStats stats() { return core().stats(); }
  std::vector<AdapterInfo> adapters() const { return engine_.adapters(); }

 private:
  StepGate gate_;
  AssembledEngine engine_;
};

}  // namespace choral::engine
