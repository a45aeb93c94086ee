#include "sched/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "sched/simulated_engine_test.h"

namespace choral::sched {
namespace {

using testing::HasSubstr;

constexpr int32_t kBlockTokens = 4;

SchedulerConfig small() {
  SchedulerConfig config;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 16;
  config.max_model_len = 64;
  config.max_waiting = 8;
  return config;
}

// A prompt whose blocks nobody else has.
std::vector<int32_t> prompt(int32_t count, int32_t start = 100) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), start);
  return ids;
}

void add(SimulatedEngine& engine, RequestId id, std::vector<int32_t> ids, int32_t max_tokens, int32_t adapter = 0,
         int32_t priority = 0) {
  const Status status = engine.scheduler.add(make_request(id, std::move(ids), max_tokens, adapter, priority));
  ASSERT_TRUE(status.ok()) << status.message();
}

// The planned (request id, tokens) in the order of rows.
std::vector<std::pair<RequestId, int32_t>> planned(const StepPlan& plan) {
  std::vector<std::pair<RequestId, int32_t>> items;
  for (const PlanItem& item : plan.items()) items.emplace_back(item.request->id, item.token_count);
  return items;
}
using Items = std::vector<std::pair<RequestId, int32_t>>;

TEST(SchedulerAdd, RefusesWhatCanNeverRun) {
  Scheduler scheduler(small(), {10, kBlockTokens});
  const auto refusal = [&](std::vector<int32_t> ids, int32_t max_tokens) {
    auto request = make_request(1, std::move(ids), max_tokens);
    const Status status = scheduler.add(std::move(request));
    EXPECT_FALSE(status.ok());
    EXPECT_NE(request, nullptr);  // still the caller's
    return status;
  };
  EXPECT_EQ(refusal({}, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(refusal(prompt(3), -1).code(), Code::kInvalidArgument);
  EXPECT_THAT(refusal(prompt(65), 0).message(), HasSubstr("at most 64")) << "of a prompt alone";
  const Status too_long = refusal(prompt(64), 1);
  EXPECT_EQ(too_long.code(), Code::kTooLarge);
  EXPECT_THAT(too_long.message(), HasSubstr("64 tokens"));
  EXPECT_THAT(too_long.message(), HasSubstr("at most 63"));
  const Status no_room = refusal(prompt(30), 12);  // 41 cached tokens: 11 blocks
  EXPECT_EQ(no_room.code(), Code::kTooLarge);
  EXPECT_THAT(no_room.message(), HasSubstr("11 KV blocks"));
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_TRUE(scheduler.add(make_request(1, prompt(30), 11)).ok());  // exactly all blocks
}

TEST(SchedulerAdd, RefusesASecondOfTheSameIdAndAFullQueue) {
  Scheduler scheduler(small(), {64, kBlockTokens});
  for (RequestId id = 0; id < 8; ++id) EXPECT_TRUE(scheduler.add(make_request(id, prompt(4), 1)).ok());
  EXPECT_EQ(scheduler.add(make_request(3, prompt(4), 1)).code(), Code::kAlreadyExists);
  const Status full = scheduler.add(make_request(9, prompt(4), 1));
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("(--max-num-queued-reqs; in the library max_waiting)"));
  EXPECT_TRUE(scheduler.cancel(3));
  EXPECT_TRUE(scheduler.add(make_request(3, prompt(4), 1)).ok());
}

TEST(SchedulerPlan, AnswersAndEndsByLength) {
  SimulatedEngine engine(small(), {16, kBlockTokens});
  add(engine, 1, prompt(6), 5);
  add(engine, 2, prompt(63), 100);  // the model's length leaves one output
  engine.drain();
  const Request* one = engine.finished_request(1);
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(one->finish_reason, FinishReason::kLength);
  EXPECT_EQ(std::vector(one->output().begin(), one->output().end()), expected_output(*one, one->prompt(), 5));
  EXPECT_EQ(engine.finished_request(2)->output_count(), 1);
  EXPECT_EQ(engine.scheduler.cache().free_blocks(), 16);
}

TEST(SchedulerPlan, DecodesGoFirstThenRunningPrefillsThenNewOnes) {
  SimulatedEngine engine(small(), {64, kBlockTokens});
  add(engine, 1, prompt(3, 100), 20);
  engine.step();  // 1 decodes from now on
  add(engine, 2, prompt(20, 200), 20);
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(planned(engine.plan), (Items{{1, 1}, {2, 15}}));
  EXPECT_FALSE(engine.plan.items()[1].needs_logits);
  engine.execute();
  engine.commit();
  add(engine, 3, prompt(30, 300), 20);
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(planned(engine.plan), (Items{{1, 1}, {2, 5}, {3, 10}}));
  EXPECT_TRUE(engine.plan.items()[1].needs_logits);
  EXPECT_EQ(engine.plan.total_tokens(), 16);
}

TEST(SchedulerPlan, ChunkCapLeavesRoomForOthers) {
  SchedulerConfig config = small();
  config.max_prefill_chunk = 6;
  SimulatedEngine engine(config, {64, kBlockTokens});
  add(engine, 1, prompt(30, 100), 4);
  add(engine, 2, prompt(30, 200), 4);
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(planned(engine.plan), (Items{{1, 6}, {2, 6}}));
}

TEST(SchedulerPlan, WithoutChunkingAPromptWaitsForAStepThatHoldsAllOfIt) {
  SchedulerConfig config = small();
  config.enable_chunked_prefill = false;
  config.max_model_len = 16;
  SimulatedEngine engine(config, {64, kBlockTokens});
  add(engine, 1, prompt(10, 100), 2);
  add(engine, 2, prompt(10, 200), 2);
  add(engine, 3, prompt(3, 300), 2);  // would fit, but must not pass the second
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(planned(engine.plan), (Items{{1, 10}}));
  engine.execute();
  engine.commit();
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(planned(engine.plan), (Items{{1, 1}, {2, 10}, {3, 3}}));
}

TEST(SchedulerPlan, RowsAreGroupedByAdapterBaseFirst) {
  SimulatedEngine engine(small(), {64, kBlockTokens});
  add(engine, 1, prompt(2), 9, 7);
  add(engine, 2, prompt(2), 9, 0);
  add(engine, 3, prompt(2), 9, 7);
  add(engine, 4, prompt(2), 9, 3);
  engine.step();
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(planned(engine.plan), (Items{{2, 1}, {4, 1}, {1, 1}, {3, 1}}));
  EXPECT_EQ(engine.plan.segments().size(), 2u);
}

TEST(SchedulerPlan, TokensAcceptedAtOnceAreComputedAsAChunk) {
  SimulatedEngine engine(small(), {64, kBlockTokens});
  engine.tokens_at_once = 3;
  add(engine, 1, prompt(2), 8);
  add(engine, 2, prompt(2, 50), 1);
  engine.step();
  engine.scheduler.schedule(engine.plan);
  ASSERT_EQ(planned(engine.plan), (Items{{1, 3}}));
  EXPECT_EQ(engine.plan.items()[0].first_token, 2);
  EXPECT_TRUE(engine.plan.items()[0].needs_logits);
  EXPECT_FALSE(engine.plan.items()[0].is_decode);
  engine.execute();
  engine.commit();
  engine.drain();
  for (const RequestId id : {1, 2}) {
    const Request& done = *engine.finished_request(id);
    EXPECT_TRUE(std::ranges::equal(done.output(), expected_output(done, done.prompt(), done.max_tokens)));
  }
}

TEST(SchedulerPlan, MaxNumSeqsHolds) {
  SimulatedEngine engine(small(), {64, kBlockTokens});
  for (RequestId id = 0; id < 6; ++id) add(engine, id, prompt(1), 3);
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(engine.plan.items().size(), 4u);
  EXPECT_EQ(engine.scheduler.waiting_count(), 2);
}

TEST(SchedulerPlan, PriorityDecidesAmongWaitingUnderItsPolicyOnly) {
  SchedulerConfig config = small();
  for (const Policy policy : {Policy::kFcfs, Policy::kPriority}) {
    config.policy = policy;
    config.max_num_seqs = 1;
    SimulatedEngine engine(config, {64, kBlockTokens});
    add(engine, 1, prompt(4, 100), 1, 0, 5);
    add(engine, 2, prompt(4, 200), 1, 0, -5);
    engine.scheduler.schedule(engine.plan);
    EXPECT_EQ(planned(engine.plan), (Items{{policy == Policy::kFcfs ? 1u : 2u, 4}}));
  }
}

TEST(SchedulerPlan, AdaptersShareAdmissionFairly) {
  SchedulerConfig config = small();
  config.max_num_seqs = 1;
  SimulatedEngine engine(config, {64, kBlockTokens});
  for (RequestId id = 1; id <= 4; ++id) add(engine, id, prompt(4, static_cast<int32_t>(100 * id)), 2, 1);
  add(engine, 9, prompt(4, 900), 2, 2);
  engine.step();
  engine.step();  // the first of adapter 1 is done, its account is ahead
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(planned(engine.plan), (Items{{9, 4}}));
}

TEST(SchedulerPlan, WatermarkKeepsBlocksForThoseRunning) {
  SchedulerConfig config = small();
  config.watermark_blocks = 2;
  SimulatedEngine engine(config, {5, kBlockTokens});
  add(engine, 1, prompt(4, 100), 8);
  add(engine, 2, prompt(9, 200), 2);  // 3 of the 4 free blocks: only 1 would stay
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(planned(engine.plan), (Items{{1, 4}}));
}

TEST(SchedulerPlan, AbandonedStepLeavesRequestsAsTheyWere) {
  SimulatedEngine engine(small(), {16, kBlockTokens});
  add(engine, 1, prompt(6), 3);
  engine.scheduler.schedule(engine.plan);
  engine.scheduler.abandon(engine.plan);
  EXPECT_EQ(engine.scheduler.cache().cached_blocks(), 0);  // nothing was computed, nothing is shared
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(planned(engine.plan), (Items{{1, 6}}));
  engine.execute();
  engine.commit();
  engine.drain();
  EXPECT_EQ(engine.finished_request(1)->output_count(), 3);
}

TEST(SchedulerPlanDeathTest, ProtocolIsChecked) {
  SimulatedEngine engine(small(), {16, kBlockTokens});
  add(engine, 1, prompt(6), 3);
  engine.scheduler.schedule(engine.plan);
  EXPECT_DEATH(engine.scheduler.schedule(engine.plan), "before the last plan ended");
  engine.scheduler.on_computed(engine.plan);
  EXPECT_DEATH(engine.scheduler.on_computed(engine.plan), "ended twice");
  EXPECT_DEATH(engine.scheduler.schedule(engine.plan), "got no token");
}

TEST(SchedulerFinish, CancelFreesEverythingWhereverTheRequestIs) {
  SimulatedEngine engine(small(), {16, kBlockTokens});
  add(engine, 1, prompt(6, 100), 9);
  engine.step();  // 1 decodes
  add(engine, 2, prompt(30, 200), 9);
  engine.step();                      // 2 is in its prefill
  add(engine, 3, prompt(8, 300), 9);  // 3 waits
  for (const RequestId id : {3, 2, 1}) {
    EXPECT_TRUE(engine.scheduler.cancel(id));
    EXPECT_FALSE(engine.scheduler.cancel(id));
    EXPECT_EQ(engine.scheduler.find(id), nullptr);
  }
  EXPECT_FALSE(engine.scheduler.has_work());
  EXPECT_EQ(engine.scheduler.cache().free_blocks(), 16);
  engine.scheduler.take_finished(engine.finished);
  EXPECT_EQ(engine.finished.size(), 3u);
  EXPECT_EQ(engine.finished_request(2)->finish_reason, FinishReason::kCancelled);
}

TEST(SchedulerFinish, CancelDuringTheStepKeepsTheBlocksUntilItEnds) {
  SimulatedEngine engine(small(), {16, kBlockTokens});
  add(engine, 1, prompt(6, 100), 9);
  add(engine, 2, prompt(6, 200), 9);
  engine.scheduler.schedule(engine.plan);
  EXPECT_TRUE(engine.scheduler.cancel(1));
  EXPECT_EQ(engine.scheduler.cache().free_blocks(), 12);
  engine.scheduler.take_finished(engine.finished);
  EXPECT_TRUE(engine.finished.empty());  // the plan still points to it
  EXPECT_EQ(engine.scheduler.add(make_request(1, prompt(3), 1)).code(), Code::kAlreadyExists);
  engine.execute();
  engine.commit();
  EXPECT_EQ(engine.scheduler.cache().free_blocks(), 14);
  ASSERT_EQ(engine.finished.size(), 1u);
  EXPECT_EQ(engine.finished[0]->output_count(), 0);
  engine.drain();
  EXPECT_EQ(engine.finished_request(2)->output_count(), 9);
}

TEST(SchedulerFinish, AFailedRequestSharesNothingItsNeighboursGoOn) {
  SimulatedEngine engine(small(), {16, kBlockTokens});
  add(engine, 1, prompt(8, 100), 9);
  add(engine, 2, prompt(8, 200), 3);
  engine.scheduler.schedule(engine.plan);
  engine.execute();
  engine.scheduler.finish(*engine.scheduler.find(1), FinishReason::kError);
  engine.commit();
  EXPECT_EQ(engine.scheduler.cache().cached_blocks(), 2);  // of 2 alone
  engine.drain();
  EXPECT_EQ(engine.finished_request(1)->finish_reason, FinishReason::kError);
  EXPECT_EQ(engine.finished_request(2)->output_count(), 3);
}

TEST(SchedulerFinish, TheFirstReasonStays) {
  SimulatedEngine engine(small(), {16, kBlockTokens});
  add(engine, 1, prompt(8), 9);
  engine.scheduler.schedule(engine.plan);
  Request& request = *engine.scheduler.find(1);
  engine.scheduler.finish(request, FinishReason::kStop);
  engine.scheduler.finish(request, FinishReason::kError);
  EXPECT_EQ(request.finish_reason, FinishReason::kStop);
  engine.scheduler.on_computed(engine.plan);
}

TEST(SchedulerSitsOut, NoStepHasItAndOthersGoOn) {
  SimulatedEngine alone(small(), {20, kBlockTokens});
  add(alone, 1, prompt(5), 12);
  while (alone.scheduler.has_work()) alone.step();
  SimulatedEngine engine(small(), {20, kBlockTokens});
  add(engine, 1, prompt(5), 12);
  add(engine, 2, prompt(5, 300), 12);
  engine.step();
  engine.step();
  Request& request = *engine.scheduler.find(1);
  request.sits_out = true;
  for (int i = 0; i < 3; ++i) {
    engine.step();
    EXPECT_EQ(planned(engine.plan), (Items{{2, 1}}));
  }
  engine.scheduler.finish(*engine.scheduler.find(2), FinishReason::kCancelled);
  engine.step();
  EXPECT_TRUE(engine.plan.empty());
  EXPECT_TRUE(engine.scheduler.has_work());
  request.sits_out = false;
  while (engine.scheduler.has_work()) engine.step();
  EXPECT_EQ(engine.finished.back()->tokens, alone.finished.back()->tokens);
}

// Its blocks may go; it comes back only when it is taken back.
TEST(SchedulerSitsOut, APreemptedOneWaitsToo) {
  SimulatedEngine engine(small(), {6, kBlockTokens});
  add(engine, 1, prompt(8), 12);
  add(engine, 2, prompt(8, 300), 12);
  engine.step();
  Request& request = *engine.scheduler.find(2);
  request.sits_out = true;
  while (request.status != RequestStatus::kPreempted && engine.scheduler.find(1) != nullptr) engine.step();
  ASSERT_EQ(request.status, RequestStatus::kPreempted);
  while (engine.scheduler.find(1) != nullptr) engine.step();
  engine.step();
  EXPECT_TRUE(engine.plan.empty());
  EXPECT_EQ(request.status, RequestStatus::kPreempted);
  request.sits_out = false;
  while (engine.scheduler.has_work()) engine.step();
  EXPECT_EQ(engine.finished.back()->output_count(), 12);
}

}  // namespace
}  // namespace choral::sched
