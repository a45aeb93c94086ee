// Who cancels a request, or drops its stream, is rid of it when the step in progress ends, whatever the request was at: then it
// computes nothing more, and holds neither blocks nor a place in the queue. Steps are counted, not timed.
#include <gmock/gmock.h>

#include "engine/adapters/adapter_files_test.h"
#include "engine/gated_executor_test.h"

namespace choral::engine {
namespace {

EngineOptions small_options() {
  auto options = tiny_options();
  options.max_num_seqs = 2;
  options.max_num_batched_tokens = 32;
  options.enable_prefix_caching = false;
  return options;
}

class CancelTest : public ::testing::Test {
 protected:
  // The engine stands in the middle of a step and everybody but `others` leaves.
  void expect_gone(GatedEngine& engine, const GatedEngine::Submitted& leaver, int others_running) {
    const int asked = engine.gate().asked();
    engine.cancel(leaver);
    engine.gate().allow(1);
    if (others_running > 0) {
      engine.gate().wait_for_asked(asked + 1);  // the others' next step, planned without it
      EXPECT_TRUE(leaver.response->finished());
      engine.gate().allow(1);
      engine.gate().wait_for_asked(asked + 2);  // and that one is counted
    } else {
      engine.turn();
      EXPECT_EQ(engine.gate().asked(), asked) << "a step was computed for nobody";
      EXPECT_EQ(engine.stats().kv_blocks_free, engine.stats().kv_blocks_total);
    }
    EXPECT_TRUE(leaver.response->finished());
    const auto output = leaver.response->wait();
    EXPECT_EQ(output.completions.at(0).finish_reason, FinishReason::kCancelled);
    const auto stats = engine.stats();
    EXPECT_EQ(stats.running, others_running);
    EXPECT_EQ(stats.waiting, 0);
    EXPECT_EQ(stats.waiting_tokens, 0);
  }
};

TEST_F(CancelTest, WhileItAnswers) {
  GatedEngine engine(small_options());
  const auto request = engine.submit(greedy_request(random_prompt(20, 1), 200));
  engine.gate().allow(4);
  engine.gate().wait_for_asked(5);
  expect_gone(engine, request, 0);
  EXPECT_LE(engine.stats().generated_tokens, 5);
}

TEST_F(CancelTest, InItsPrompt) {
  GatedEngine engine(small_options());
  const auto request = engine.submit(greedy_request(random_prompt(300, 1), 20));
  engine.gate().allow(2);
  engine.gate().wait_for_asked(3);
  expect_gone(engine, request, 0);
  EXPECT_EQ(engine.stats().prompt_tokens, 3 * 32);
  EXPECT_EQ(engine.stats().generated_tokens, 0);
}

TEST_F(CancelTest, InTheQueue) {
  auto options = small_options();
  options.max_num_seqs = 1;
  GatedEngine engine(options);
  const auto runs = engine.submit(greedy_request(random_prompt(20, 1), 200));
  engine.gate().wait_for_asked(1);
  const auto waits = engine.submit(greedy_request(random_prompt(20, 2), 200));
  engine.gate().allow(1);
  engine.gate().wait_for_asked(2);
  EXPECT_EQ(engine.stats().waiting, 1);
  EXPECT_EQ(engine.stats().waiting_tokens, 20);
  expect_gone(engine, waits, 1);
  EXPECT_EQ(engine.stats().prompt_tokens, 20);
  EXPECT_FALSE(runs.response->finished());
}

TEST_F(CancelTest, WhileItsAdapterHasNoRoom) {
  const AdapterFiles files;
  files.write("a", 4, 1);
  files.write("b", 4, 2);
  auto options = small_options();
  options.adapter_root = files.root().string();
  options.adapter_memory_bytes = [&] {
    const auto llm = load_or_die(options);
    auto request = greedy_request(random_prompt(5, 1), 1);
    request.adapters = {{"a"}};
    EXPECT_TRUE(llm->generate({request}).front().status.ok());
    return llm->adapters().front().size_bytes * 3 / 2;
  }();
  GatedEngine engine(options);
  const auto runs = engine.submit(with_adapters(greedy_request(random_prompt(20, 1), 400), {{"a"}}));
  engine.gate().wait_for_asked(1);
  const auto waits = engine.submit(with_adapters(greedy_request(random_prompt(20, 2), 400), {{"b"}}));
  // Its adapter is read, once, beside the steps; then it waits for the other's end.
  const auto is_read = [&] {
    const auto all = engine.adapters();
    return std::any_of(all.begin(), all.end(), [](const AdapterInfo& info) { return info.name == "b" && info.loads == 1; });
  };
  for (int steps = 1; !is_read() || engine.stats().adapter_loads < 2; ++steps) {
    ASSERT_LT(steps, 380);
    engine.gate().allow(1);
    engine.gate().wait_for_asked(steps + 1);
    while (steps > 1 && !is_read()) std::this_thread::yield();  // asked for since the second step began
  }
  EXPECT_EQ(engine.stats().waiting, 1);
  EXPECT_EQ(engine.stats().running, 1);
  expect_gone(engine, waits, 1);
  EXPECT_EQ(waits.response->facts().adapters.size(), 0U) << "it never came to a step";
  EXPECT_EQ(runs.response->facts().adapters.at(0).name, "a");
}

TEST_F(CancelTest, AfterItGaveWay) {
  auto options = small_options();
  options.max_model_len = 96;
  options.max_num_batched_tokens = 128;
  {
    const auto probe = load_or_die(options);
    options.kv_cache_bytes = probe->info().kv_cache_bytes / (probe->info().kv_cache_tokens / 32) * 3;  // one of them, and no more
  }
  GatedEngine engine(options);
  const auto first = engine.submit(greedy_request(random_prompt(30, 1), 60));
  engine.gate().wait_for_asked(1);
  const auto second = engine.submit(greedy_request(random_prompt(30, 2), 60));
  int steps = 1;
  for (; engine.stats().preemptions == 0 && steps < 60; ++steps) {
    engine.gate().allow(1);
    engine.gate().wait_for_asked(steps + 1);
  }
  ASSERT_EQ(engine.stats().preemptions, 1);
  ASSERT_EQ(engine.stats().waiting, 1);
  expect_gone(engine, second, 1);
  engine.gate().open();
  EXPECT_EQ(first.response->wait().completions.at(0).token_ids.size(), 60U);
}

TEST_F(CancelTest, BeforeTheEngineHasSeenIt) {
  GatedEngine engine(small_options());
  const auto runs = engine.submit(greedy_request(random_prompt(20, 1), 10));
  engine.gate().wait_for_asked(1);
  const auto comes = engine.submit(greedy_request(random_prompt(20, 2), 10));
  expect_gone(engine, comes, 1);
  EXPECT_EQ(engine.stats().prompt_tokens, 20);
}

TEST_F(CancelTest, EachCompletionOfIt) {
  GatedEngine engine(small_options());
  auto request = greedy_request(random_prompt(20, 1), 100);
  request.sampling.n = 2;
  request.sampling.best_of = 5;
  const auto many = engine.submit(request);
  EXPECT_EQ(many.ids.size(), 5U);
  engine.gate().allow(3);
  engine.gate().wait_for_asked(4);
  EXPECT_EQ(engine.stats().waiting, 3);
  expect_gone(engine, many, 0);
}

TEST(DroppedStream, IsCancelled) {
  constexpr int kCompletions = 64, kTokens = 450;  // one after another: the first is dropped long before the last begins
  auto options = tiny_options();
  options.max_num_seqs = 1;
  const auto llm = load_or_die(options);
  auto request = greedy_request(random_prompt(20, 2), kTokens);
  request.sampling.n = kCompletions;
  auto stream = llm->submit(request);
  ASSERT_TRUE(stream.ok());
  StreamEvent event;
  ASSERT_TRUE((*stream)->next(event));
  stream->reset();
  ASSERT_TRUE(llm->check_health(std::chrono::minutes(5)).ok());
  EXPECT_EQ(llm->stats().running, 0);
  EXPECT_EQ(llm->stats().waiting, 0);
  EXPECT_LT(llm->stats().generated_tokens, kCompletions * kTokens);
}

}  // namespace
}  // namespace choral::engine
