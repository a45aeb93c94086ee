// Activated adapters (aLoRA): which prefixes are shared, and that the answers stay right.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "sched/simulated_engine_test.h"

namespace choral::sched {
namespace {

constexpr int32_t kBlockTokens = 4;

SchedulerConfig small() {
  SchedulerConfig config;
  config.max_num_seqs = 4;
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

void add_activated(SimulatedEngine& engine, RequestId id, std::vector<int32_t> ids, int32_t adapter, int32_t activation) {
  ASSERT_TRUE(engine.scheduler.add(make_activated_request(id, std::move(ids), 3, adapter, activation)).ok());
}

TEST(SchedulerActivation, BlocksBeforeItAreTheBasesBlocksAfterItTheAdaptersOwn) {
  SimulatedEngine engine(small(), {64, kBlockTokens});
  add_activated(engine, 1, prompt(23), 0, 0);
  engine.drain();
  const auto cached = [&](RequestId id, int32_t adapter, int32_t activation) {
    add_activated(engine, id, prompt(23), adapter, activation);
    engine.drain();
    return engine.finished_request(id)->cached_prompt_tokens;
  };
  EXPECT_EQ(cached(2, 7, 14), 12);  // three blocks of the base
  EXPECT_EQ(cached(3, 7, 14), 20);  // its own later ones too
  EXPECT_EQ(cached(4, 8, 14), 12);  // another adapter
  EXPECT_EQ(cached(5, 7, 13), 12);  // the same one, from another token of the same block
  EXPECT_EQ(cached(6, 7, 16), 16);  // on the border: four blocks
  EXPECT_EQ(cached(7, 7, 3), 0);
  EXPECT_EQ(cached(8, 7, 0), 0);  // all of it
  EXPECT_EQ(cached(9, 7, 0), 20);
  EXPECT_EQ(cached(10, 7, 23), 20);  // only the answer is the adapter's
  EXPECT_EQ(cached(11, 0, 0), 20);
}

TEST(SchedulerActivation, TheBaseTakesBlocksThatAnAdaptersRequestComputed) {
  SimulatedEngine engine(small(), {64, kBlockTokens});
  add_activated(engine, 1, prompt(23), 7, 14);
  engine.drain();
  add_activated(engine, 2, prompt(23), 0, 0);
  engine.drain();
  EXPECT_EQ(engine.finished_request(2)->cached_prompt_tokens, 12);
}

TEST(SchedulerActivation, EqualAnswersInChunksAndAfterPreemption) {
  SchedulerConfig config = small();
  config.max_num_batched_tokens = 5;
  config.max_num_seqs = 3;
  SimulatedEngine engine(config, {12, kBlockTokens});
  for (RequestId id = 1; id <= 3; ++id) {
    auto request = make_activated_request(id, prompt(13, 40), 9, static_cast<int32_t>(id), static_cast<int32_t>(5 * id - 3));
    ASSERT_TRUE(engine.scheduler.add(std::move(request)).ok());
  }
  engine.drain();
  for (const auto& request : engine.finished) {
    EXPECT_TRUE(std::ranges::equal(request->output(), expected_output(*request, request->prompt(), 9)));
  }
}

TEST(SchedulerActivation, RefusesPositionsOutsideThePrompt) {
  Scheduler scheduler(small(), {16, kBlockTokens});
  for (const int32_t activation : {-1, 5}) {
    auto request = make_activated_request(1, prompt(4), 3, 7, 0);
    request->activation_token = activation;
    request->activated_root = request->prefix_root;
    EXPECT_EQ(scheduler.add(std::move(request)).code(), Code::kInvalidArgument) << activation;
  }
  auto without_root = make_request(1, prompt(4), 3, 7);
  without_root->activation_token = 2;
  EXPECT_EQ(scheduler.add(std::move(without_root)).code(), Code::kInternal);
}

}  // namespace
}  // namespace choral::sched
