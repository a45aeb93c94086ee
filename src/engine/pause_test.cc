// A pause: no step is computed, whatever comes; what goes on goes on as if nothing had been. Steps are counted, not timed.
#include <gmock/gmock.h>

#include <thread>

#include "engine/adapters/adapter_files_test.h"
#include "engine/gated_executor_test.h"

namespace choral::engine {
namespace {

EngineOptions small_options() {
  auto options = tiny_options();
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 32;
  return options;
}

// Pauses from a thread of its own, because that waits for the step in progress.
class Pausing {
 public:
  Pausing(EngineCore& core, PauseMode mode) : thread_([this, &core, mode] { status_ = core.pause(mode); }) {}
  Status wait() {
    thread_.join();
    return status_;
  }

 private:
  Status status_;
  std::thread thread_;
};

// Its step in progress ends, and then none is asked for.
void pause_keeping(GatedEngine& engine) {
  Pausing pausing(engine.core(), PauseMode::kKeep);
  while (!engine.stats().is_paused) std::this_thread::yield();
  engine.gate().allow(1);
  ASSERT_TRUE(pausing.wait().ok());
}

TEST(PauseTest, WhatStoodStillGoesOnToTheSameBits) {
  const auto ask = [](uint32_t seed) { return greedy_request(random_prompt(100, seed), 12); };
  std::vector<RequestOutput> wanted;
  {
    GatedEngine engine(small_options());
    engine.gate().open();
    for (uint32_t seed = 1; seed <= 3; ++seed) wanted.push_back(engine.submit(ask(seed)).response->wait());
  }
  GatedEngine engine(small_options());
  const auto first = engine.submit(ask(1)), second = engine.submit(ask(2));
  engine.gate().allow(9);  // the first answers, the second is in its prompt
  engine.gate().wait_for_asked(10);
  pause_keeping(engine);
  const int asked = engine.gate().asked();
  const auto third = engine.submit(ask(3));
  engine.turn();
  engine.turn();
  EXPECT_EQ(engine.gate().asked(), asked) << "a step is computed while the engine is paused";
  EXPECT_TRUE(engine.core().heartbeat().is_alive());
  EXPECT_EQ(engine.stats().waiting, 1);
  engine.gate().open();
  engine.turn();
  EXPECT_EQ(engine.gate().asked(), asked);
  engine.core().resume();
  expect_same_bits(first.response->wait(), wanted[0]);
  expect_same_bits(second.response->wait(), wanted[1]);
  expect_same_bits(third.response->wait(), wanted[2]);
  EXPECT_FALSE(engine.stats().is_paused);
}

TEST(PauseTest, CancelsAndDeadlinesCountOn) {
  std::atomic<double> time = 1;
  GatedEngine engine(small_options(), [&time] { return time.load(); });
  auto late = greedy_request(random_prompt(20, 1), 50);
  late.timeout_s = 10;
  const auto leaver = engine.submit(greedy_request(random_prompt(20, 2), 50));
  const auto limited = engine.submit(std::move(late));
  engine.gate().allow(2);
  engine.gate().wait_for_asked(3);
  pause_keeping(engine);
  engine.cancel(leaver);
  EXPECT_EQ(leaver.response->wait().completions.at(0).finish_reason, FinishReason::kCancelled);
  time = 20;
  engine.turn();
  EXPECT_EQ(limited.response->wait().status.code(), Code::kDeadlineExceeded);
  engine.turn();
  EXPECT_EQ(engine.stats().kv_blocks_free, engine.stats().kv_blocks_total) << "what ended in a pause holds its blocks";
}

TEST(PauseTest, WaitingEndsWhatIsThereAndHoldsWhatComes) {
  GatedEngine engine(small_options());
  const auto runs = engine.submit(greedy_request(random_prompt(20, 1), 6));
  engine.gate().wait_for_asked(1);
  Pausing pausing(engine.core(), PauseMode::kWait);
  while (!engine.stats().is_paused) std::this_thread::yield();
  const auto held = engine.submit(greedy_request(random_prompt(20, 2), 6));
  const auto dropped = engine.submit(greedy_request(random_prompt(20, 3), 6));
  engine.gate().open();
  ASSERT_TRUE(pausing.wait().ok());
  EXPECT_TRUE(runs.response->finished());
  EXPECT_EQ(runs.response->wait().completions.at(0).token_ids.size(), 6u);
  EXPECT_FALSE(held.response->finished());
  EXPECT_EQ(engine.stats().generated_tokens, 6) << "what came later was answered";
  EXPECT_EQ(engine.stats().waiting, 2);
  engine.cancel(dropped);
  engine.turn();
  EXPECT_EQ(engine.stats().waiting, 1);
  engine.core().resume();
  EXPECT_EQ(held.response->wait().completions.at(0).token_ids.size(), 6u);
}

TEST(PauseTest, AbortingEndsWhatIsThere) {
  GatedEngine engine(small_options());
  const auto runs = engine.submit(greedy_request(random_prompt(20, 1), 50));
  engine.gate().wait_for_asked(1);
  Pausing pausing(engine.core(), PauseMode::kAbort);
  while (!engine.stats().is_paused) std::this_thread::yield();
  engine.gate().open();
  ASSERT_TRUE(pausing.wait().ok());
  EXPECT_EQ(runs.response->wait().completions.at(0).finish_reason, FinishReason::kCancelled);
  const auto later = engine.submit(greedy_request(random_prompt(20, 2), 4));
  engine.turn();
  EXPECT_FALSE(later.response->finished());
  engine.core().resume();
  EXPECT_EQ(later.response->wait().completions.at(0).finish_reason, FinishReason::kLength);
}

TEST(PauseTest, WhoIsResumedBeforeItPausedIsTold) {
  GatedEngine engine(small_options());
  const auto runs = engine.submit(greedy_request(random_prompt(20, 1), 50));
  engine.gate().wait_for_asked(1);
  Pausing pausing(engine.core(), PauseMode::kWait);
  while (!engine.stats().is_paused) std::this_thread::yield();
  const auto held = engine.submit(greedy_request(random_prompt(20, 2), 4));
  engine.core().resume();
  EXPECT_EQ(pausing.wait().code(), Code::kUnavailable);
  engine.gate().open();
  EXPECT_EQ(held.response->wait().completions.at(0).finish_reason, FinishReason::kLength);
  EXPECT_EQ(runs.response->wait().completions.at(0).finish_reason, FinishReason::kLength);
}

// Whoever waits for an adapter when the pause begins is in flight, and what it waits for comes meanwhile.
TEST(PauseTest, AdaptersAreLoadedMeanwhile) {
  const AdapterFiles files;
  files.write("a", 4, 1);
  auto options = small_options();
  options.adapter_root = files.root().string();
  const auto llm = load_or_die(options);
  ASSERT_TRUE(llm->pause(PauseMode::kKeep).ok());
  auto stream = llm->submit(with_adapters(greedy_request(random_prompt(20, 1), 4), {{"a"}}));
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE(llm->pin_adapter("a", true).ok());
  EXPECT_EQ(llm->adapter("a")->state, AdapterState::kResident);
  EXPECT_EQ(llm->stats().generated_tokens, 0);
  ASSERT_TRUE(llm->load_adapter({.name = "b", .path = files.write("b", 4, 2)}).ok());
  llm->resume();
  EXPECT_TRUE((*stream)->wait().status.ok());
}

TEST(PauseTest, AnEngineThatEndsTellsWhoWaits) {
  const auto llm = load_or_die(small_options());
  ASSERT_TRUE(llm->pause(PauseMode::kKeep).ok());
  auto stream = llm->submit(greedy_request(random_prompt(20, 1), 4));
  ASSERT_TRUE(stream.ok());
}

}  // namespace
}  // namespace choral::engine
