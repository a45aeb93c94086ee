// Adapters that come to the device beside the steps: their requests wait, all others go on, and nobody's bits tell the
// difference.
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "engine/adapters/adapter_files_test.h"
#include "engine/gated_executor_test.h"

namespace choral::engine {
namespace {

using std::chrono::minutes;

// What the test and the executor share, which the engine owns.
class Way {
 public:
  // --- the test's ---
  void wait_for_asked(size_t voices) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_.size() >= voices; });
  }
  // All that was asked for has come.
  void bring() {
    const std::lock_guard lock(mutex_);
    arrived_ = asked_;
    if (wake_) wake_();
  }
  size_t taken() const {
    const std::lock_guard lock(mutex_);
    return taken_.size();
  }

  // --- the executor's ---
  bool ask(lora::AdapterKey key) {
    const std::lock_guard lock(mutex_);
    asked_.insert(key);
    changed_.notify_all();
    return taken_.contains(key);
  }
  void take() {
    const std::lock_guard lock(mutex_);
    taken_ = arrived_;
  }
  void set_wake(std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<lora::AdapterKey> asked_, arrived_, taken_;
  std::function<void()> wake_;
};

class LateExecutor : public GatedExecutor {
 public:
  LateExecutor(std::unique_ptr<Executor> far, StepGate& gate, Way& way) : GatedExecutor(std::move(far), gate), way_(way) {}
  Result<lora::Readiness> add_adapter(lora::AdapterKey key, lora::PackedVoice voice) override {
    if (!way_.ask(key)) return lora::Readiness::kComing;
    return GatedExecutor::add_adapter(key, std::move(voice));
  }
  void take_adapters() override { way_.take(); }
  void set_wake(std::function<void()> wake) override { way_.set_wake(std::move(wake)); }

 private:
  Way& way_;
};

class LateAdaptersTest : public ::testing::Test {
 protected:
  LateAdaptersTest() {
    files_.write("a", 4, 1);
    files_.write("b", 4, 2);
    options_.adapter_root = files_.root().string();
    gate_.open();
    engine_.emplace(options_, [this](EngineOptions& given, const ModelFiles& files) {
      return std::make_unique<LateExecutor>(AssembledEngine::one_worker(given, files), gate_, way_);
    });
  }
  static Request ask(const std::string& adapter, int seed) {
    auto request = greedy_request(random_prompt(20, static_cast<uint32_t>(seed)), 8);
    if (!adapter.empty()) request.adapters = {{adapter}};
    return request;
  }
  struct Submitted {
    std::shared_ptr<Response> response;
    sched::RequestId id;
  };
  Submitted submit(Request request) {
    auto admitted = engine_->read(std::move(request));
    const Submitted submitted{admitted.response, admitted.completions.front()->id};
    CHORAL_CHECK(engine_->core().add_requests({&admitted, 1}).ok(), "the queue has room");
    return submitted;
  }
  RequestOutput wanted(const Request& request) { return load_or_die(options_)->generate({request}).front(); }

  AdapterFiles files_;
  EngineOptions options_ = tiny_options();
  StepGate gate_;
  Way way_;
  std::optional<AssembledEngine> engine_;
};

TEST_F(LateAdaptersTest, OthersGoOnAndWhoWaitsIsAnsweredAsAlways) {
  const auto late = submit(ask("a", 1)), same = submit(ask("a", 2));
  way_.wait_for_asked(1);
  const auto other = engine_->generate({ask("", 3)}).front();
  expect_same_bits(other, wanted(ask("", 3)));
  EXPECT_FALSE(late.response->begun());
  constexpr int kAsked = 200;
  ASSERT_TRUE(engine_->core().check_health(minutes(5)).ok());
  const auto steps = engine_->stats().steps;
  for (int i = 0; i < kAsked; ++i) ASSERT_TRUE(engine_->core().check_health(minutes(5)).ok());
  EXPECT_LE(engine_->stats().steps, steps + kAsked) << "an engine whose requests all wait rests, but for turns it is asked for";
  way_.bring();
  expect_same_bits(late.response->wait(), wanted(ask("a", 1)));
  expect_same_bits(same.response->wait(), wanted(ask("a", 2)));
}

TEST_F(LateAdaptersTest, WhoIsCancelledMeanwhileLeavesNothingBehind) {
  const auto late = submit(ask("a", 1));
  way_.wait_for_asked(1);
  std::list<sched::RequestId> ids{late.id};
  engine_->core().cancel(ids);
  EXPECT_EQ(late.response->wait().completions.front().finish_reason, FinishReason::kCancelled);
  way_.bring();
  ASSERT_TRUE(engine_->core().check_health(minutes(5)).ok());
  expect_same_bits(engine_->generate({ask("a", 2)}).front(), wanted(ask("a", 2)));
  ASSERT_TRUE(engine_->core().check_health(minutes(5)).ok());  // what it did is counted
  EXPECT_EQ(engine_->stats().running, 0);
}

TEST_F(LateAdaptersTest, TheEngineEndsWhileTheyCome) {
  const auto late = submit(ask("a", 1)), another = submit(ask("b", 1));
  way_.wait_for_asked(2);
  engine_.reset();
  for (const auto& submitted : {late, another}) EXPECT_EQ(submitted.response->wait().status.code(), Code::kUnavailable);
  way_.bring();  // wakes nobody
  EXPECT_EQ(way_.taken(), 0U);
}

}  // namespace
}  // namespace choral::engine
