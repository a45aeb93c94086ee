#include <gtest/gtest.h>

#include <numeric>

#include "sched/simulated_engine_test.h"

namespace choral::sched {
namespace {

constexpr int32_t kBlockTokens = 4;

SchedulerConfig small() {
  SchedulerConfig config;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 64;
  config.max_model_len = 64;
  config.watermark_blocks = 0;
  return config;
}

std::vector<int32_t> prompt(int32_t count, int32_t start = 100) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), start);
  return ids;
}

void add(SimulatedEngine& engine, std::unique_ptr<Request> request) {
  ASSERT_TRUE(engine.scheduler.add(std::move(request)).ok());
}

void add(SimulatedEngine& engine, RequestId id, std::vector<int32_t> ids, int32_t max_tokens, int32_t adapter = 0) {
  add(engine, make_request(id, std::move(ids), max_tokens, adapter));
}

TEST(SchedulerPrefix, ASecondRequestComputesOnlyTheRest) {
  SimulatedEngine engine(small(), {32, kBlockTokens});
  add(engine, 1, prompt(12), 2);
  engine.drain();
  add(engine, 2, prompt(12), 2);
  engine.scheduler.schedule(engine.plan);
  ASSERT_EQ(engine.plan.items().size(), 1u);
  EXPECT_EQ(engine.plan.items()[0].first_token, 8);  // never the whole prompt
  EXPECT_EQ(engine.plan.items()[0].token_count, 4);
  EXPECT_EQ(engine.plan.items()[0].request->cached_prompt_tokens, 8);
  engine.execute();
  engine.commit();
  engine.drain();
  EXPECT_EQ(engine.scheduler.cache().stats().query_tokens, 24);
  EXPECT_EQ(engine.scheduler.cache().stats().hit_tokens, 8);
  const auto one = engine.finished_request(1)->output(), two = engine.finished_request(2)->output();
  EXPECT_TRUE(std::ranges::equal(one, two));
}

TEST(SchedulerPrefix, NothingIsSharedBeforeItWasSeenToBeSound) {
  SchedulerConfig config = small();
  config.max_num_batched_tokens = 8;
  SimulatedEngine engine(config, {32, kBlockTokens});
  const auto cached = [&] { return engine.scheduler.cache().cached_blocks(); };
  const auto compute = [&] {
    engine.scheduler.schedule(engine.plan);
    engine.execute();
    engine.scheduler.on_computed(engine.plan);
  };
  add(engine, 1, prompt(12), 2);
  Request& request = *engine.scheduler.find(1);
  compute();
  EXPECT_EQ(cached(), 0);
  engine.scheduler.share(request);
  EXPECT_EQ(cached(), 2);
  compute();
  EXPECT_EQ(cached(), 2);
  engine.scheduler.commit(request, std::vector<int32_t>{5});
  EXPECT_EQ(cached(), 3);
}

TEST(SchedulerPrefix, WhatIsDistrustedIsComputedAnew) {
  SchedulerConfig config = small();
  config.max_num_batched_tokens = 8;
  SimulatedEngine engine(config, {32, kBlockTokens});
  add(engine, 1, prompt(12), 2);
  Request& request = *engine.scheduler.find(1);
  engine.scheduler.schedule(engine.plan);
  engine.execute();
  engine.scheduler.on_computed(engine.plan);
  engine.scheduler.distrust(request);
  engine.scheduler.share(request);
  engine.step();  // its last chunk, and a token that is fine
  EXPECT_EQ(engine.scheduler.cache().cached_blocks(), 0);
  add(engine, 2, prompt(12), 2);
  engine.drain();
  EXPECT_EQ(engine.finished_request(2)->cached_prompt_tokens, 0);
  add(engine, 3, prompt(12), 2);
  engine.drain();
  EXPECT_EQ(engine.finished_request(3)->cached_prompt_tokens, 8);
}

TEST(SchedulerPrefix, GeneratedTokensAreFoundByTheNextTurn) {
  SimulatedEngine engine(small(), {32, kBlockTokens});
  add(engine, 1, prompt(6), 7);  // 12 tokens computed, the last output never
  engine.drain();
  std::vector<int32_t> turn(engine.finished_request(1)->tokens);
  ASSERT_EQ(turn.size(), 13u);
  turn.push_back(5);
  add(engine, 2, turn, 2);
  engine.step();
  EXPECT_EQ(engine.scheduler.find(2)->cached_prompt_tokens, 12);
}

TEST(SchedulerPrefix, NothingIsSharedAcrossRoots) {
  SimulatedEngine engine(small(), {64, kBlockTokens});
  add(engine, 1, prompt(12), 2, 0);
  engine.drain();
  add(engine, 2, prompt(12), 2, 1);
  auto salted = make_request(3, prompt(12), 2);
  salted->prefix_root = cache::make_prefix_root({}, "tenant");
  add(engine, std::move(salted));
  auto alone = make_request(4, prompt(12), 2);
  alone->prefix_root.reset();
  add(engine, std::move(alone));
  engine.step();
  for (const RequestId id : {2, 3, 4}) EXPECT_EQ(engine.scheduler.find(id)->cached_prompt_tokens, 0) << id;
  engine.drain();
  EXPECT_EQ(engine.scheduler.cache().stats().hit_tokens, 0);
  EXPECT_EQ(engine.scheduler.cache().stats().queries, 3);  // the one without root never asks
}

TEST(SchedulerPrefix, PromptLogprobsComputeEveryPromptToken) {
  SimulatedEngine engine(small(), {32, kBlockTokens});
  add(engine, 1, prompt(12), 2);
  engine.drain();
  auto request = make_request(2, prompt(12), 2);
  request->wants_prompt_logprobs = true;
  add(engine, std::move(request));
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(engine.plan.items()[0].first_token, 0);
  EXPECT_TRUE(engine.plan.items()[0].needs_prompt_logprobs);
  engine.execute();
  engine.commit();
  engine.drain();
}

TEST(SchedulerPrefix, DisabledCachingSharesNothing) {
  SchedulerConfig config = small();
  config.enable_prefix_caching = false;
  SimulatedEngine engine(config, {32, kBlockTokens});
  add(engine, 1, prompt(12), 2);
  engine.drain();
  add(engine, 2, prompt(12), 2);
  engine.step();
  EXPECT_EQ(engine.scheduler.find(2)->cached_prompt_tokens, 0);
  EXPECT_EQ(engine.scheduler.cache().cached_blocks(), 0);
}

TEST(SchedulerPrefix, ACancelledPrefillLeavesOnlyComputedBlocks) {
  SchedulerConfig config = small();
  config.max_num_batched_tokens = 10;
  SimulatedEngine engine(config, {32, kBlockTokens});
  add(engine, 1, prompt(30), 2);
  engine.step();
  engine.scheduler.cancel(1);
  EXPECT_EQ(engine.scheduler.cache().cached_blocks(), 2);
  add(engine, 2, prompt(30), 2);
  engine.step();
  EXPECT_EQ(engine.scheduler.find(2)->cached_prompt_tokens, 8);
  engine.drain();
}

TEST(SchedulerPrefix, EqualLongPromptsAreComputedOnceEvenIfTheyComeTogether) {
  SimulatedEngine engine(small(), {64, kBlockTokens});
  for (RequestId id = 1; id <= 4; ++id) add(engine, id, prompt(21), 3);
  add(engine, 9, prompt(21, 900), 3);  // another prompt need not wait
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(engine.plan.items().size(), 2u);
  EXPECT_EQ(engine.plan.total_tokens(), 42);
  engine.execute();
  engine.commit();
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(engine.plan.total_tokens(), 2 + 3 * 1);
  engine.execute();
  engine.commit();
  engine.drain();
  EXPECT_EQ(engine.scheduler.stats().deferrals, 3);
}

TEST(SchedulerPrefix, WhenTheOneComputingIsCancelledTheNextTakesOver) {
  SchedulerConfig config = small();
  config.max_num_batched_tokens = 10;
  SimulatedEngine engine(config, {64, kBlockTokens});
  add(engine, 1, prompt(40), 3);
  add(engine, 2, prompt(40), 3);
  engine.step();
  EXPECT_EQ(engine.scheduler.running_count(), 1);
  engine.scheduler.cancel(1);
  engine.step();
  EXPECT_EQ(engine.scheduler.find(2)->cached_prompt_tokens, 8);
  engine.drain();
  EXPECT_EQ(engine.finished_request(2)->output_count(), 3);
}

TEST(SchedulerPrefix, AnUrgentRequestDoesNotWaitForALessUrgentOne) {
  SchedulerConfig config = small();
  config.policy = Policy::kPriority;
  config.max_num_batched_tokens = 10;
  config.max_prefill_chunk = 5;
  SimulatedEngine engine(config, {64, kBlockTokens});
  auto background = make_request(1, prompt(40), 3, 0, 9);
  add(engine, std::move(background));
  engine.step();
  add(engine, 2, prompt(40), 3);
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(engine.plan.items().size(), 2u);
  engine.execute();
  engine.commit();
  engine.drain();
}

TEST(SchedulerPrefix, AFewSharedBlocksAreNotWorthWaitingFor) {
  SimulatedEngine engine(small(), {64, kBlockTokens});
  add(engine, 1, prompt(16), 3);  // three full blocks at most can be shared
  add(engine, 2, prompt(16), 3);
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(engine.plan.items().size(), 2u);
  engine.execute();
  engine.commit();
  engine.drain();
}

}  // namespace
}  // namespace choral::sched
