// Adapters as a condition of admission: residency, max_loras, draining for the promoted one, holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "sched/simulated_engine_test.h"

namespace choral::sched {
namespace {

using testing::ElementsAre;

constexpr int32_t kBlockTokens = 4;

SchedulerConfig small() {
  SchedulerConfig config;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 64;
  config.max_model_len = 64;
  config.max_waiting = 32;
  config.watermark_blocks = 0;
  config.fair_adapters = false;  // strictly by arrival, so that tests say who is asked first
  return config;
}

std::vector<int32_t> prompt(int32_t count, int32_t start = 100) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), start);
  return ids;
}

void add(SimulatedEngine& engine, RequestId id, int32_t adapter, int32_t outputs, int32_t count = 4, int32_t priority = 0) {
  auto request = make_request(id, prompt(count, static_cast<int32_t>(id) * 100), outputs, adapter, priority);
  ASSERT_TRUE(engine.scheduler.add(std::move(request)).ok());
}

std::vector<RequestId> running(const SimulatedEngine& engine) {
  std::vector<RequestId> ids;
  for (const Request* request : engine.scheduler.running()) ids.push_back(request->id);
  return ids;
}

TEST(SchedulerAdapter, WaitsForItsLoadWhileOthersGoOn) {
  SimulatedResidency memory(4, 2);
  SimulatedEngine engine(small(), {64, kBlockTokens}, &memory);
  add(engine, 1, 7, 3);
  add(engine, 2, 0, 9);
  engine.step();
  EXPECT_THAT(running(engine), ElementsAre(2));
  EXPECT_EQ(engine.scheduler.find(1)->status, RequestStatus::kWaiting);
  EXPECT_EQ(engine.scheduler.deferred_count(), 1);
  engine.step();
  EXPECT_THAT(running(engine), ElementsAre(2));
  engine.step();
  EXPECT_THAT(running(engine), ElementsAre(1, 2));
  EXPECT_TRUE(memory.holds(*engine.scheduler.find(1)));
  EXPECT_EQ(memory.loads(), 1);
  EXPECT_EQ(engine.scheduler.stats().adapter_waits, 2);
  engine.drain();
  EXPECT_EQ(memory.holders(), 0u);
  EXPECT_EQ(memory.fault(), "");
}

TEST(SchedulerAdapter, WhoWaitsForRoomIsNotDeferred) {
  SimulatedResidency memory(4, 100);
  auto config = small();
  config.max_num_seqs = 1;
  SimulatedEngine engine(config, {64, kBlockTokens}, &memory);
  add(engine, 1, 7, 3);
  add(engine, 2, 7, 3);
  add(engine, 3, 0, 9);
  add(engine, 4, 0, 9);
  engine.step();
  EXPECT_THAT(running(engine), ElementsAre(3));
  EXPECT_EQ(engine.scheduler.waiting_count(), 3);
  EXPECT_EQ(engine.scheduler.deferred_count(), 2) << "both of the adapter that is being loaded";
}

TEST(SchedulerAdapter, AnEmptyPlanWithWorkMeansThatEverybodyWaitsForLoads) {
  SimulatedResidency memory(4, 3);
  SimulatedEngine engine(small(), {64, kBlockTokens}, &memory);
  add(engine, 1, 7, 3);
  add(engine, 2, 8, 3);
  engine.scheduler.schedule(engine.plan);
  EXPECT_TRUE(engine.plan.empty());
  EXPECT_TRUE(engine.scheduler.has_work());
  EXPECT_TRUE(memory.loading());
  engine.commit();
  engine.drain();
  EXPECT_EQ(engine.finished.size(), 2u);
}

TEST(SchedulerAdapter, IsHeldOnlyWhenTheRequestIsAdmitted) {
  SimulatedResidency memory(4, 0);
  SimulatedEngine engine(small(), {8, kBlockTokens}, &memory);
  add(engine, 1, 0, 20, 12);
  add(engine, 2, 7, 4, 24);  // 6 blocks, 5 are free
  engine.step();
  EXPECT_EQ(memory.loads(), 1) << "it comes while the request waits for blocks";
  EXPECT_EQ(memory.holders(), 0u);
  engine.drain();
  EXPECT_EQ(memory.loads(), 1);
}

TEST(SchedulerAdapter, RequestsWhoseAdapterIsThereGoAheadOfThoseWithoutRoom) {
  SimulatedResidency memory(1, 0);
  SimulatedEngine engine(small(), {64, kBlockTokens}, &memory);
  add(engine, 1, 7, 9);
  add(engine, 2, 8, 2);
  add(engine, 3, 8, 2);
  add(engine, 4, 7, 2);
  add(engine, 5, 0, 2);
  engine.step();
  EXPECT_THAT(running(engine), ElementsAre(1, 4, 5));
  EXPECT_EQ(engine.scheduler.stats().adapter_waits, 1);  // asked once for both
  engine.drain();
  EXPECT_EQ(memory.fault(), "");
  EXPECT_EQ(engine.finished.size(), 5u);
}

TEST(SchedulerAdapter, AWithdrawnOneComesBackToItsPlaceForAnotherAdapter) {
  SimulatedResidency memory(1, 0);
  SimulatedEngine engine(small(), {64, kBlockTokens}, &memory);
  add(engine, 1, 7, 3);
  add(engine, 2, 8, 2);
  add(engine, 3, 9, 2);
  engine.step();
  EXPECT_THAT(running(engine), ElementsAre(1));
  auto request = engine.scheduler.withdraw(*engine.scheduler.find(2));
  ASSERT_NE(request, nullptr);
  EXPECT_EQ(engine.scheduler.find(2), nullptr);
  EXPECT_EQ(engine.scheduler.waiting_count(), 1);
  memory.leave(*request);
  use_adapters(*request, 10, {10});
  ASSERT_TRUE(engine.add(std::move(request)).ok());
  while (engine.scheduler.find(1) != nullptr) engine.step();
  engine.step();
  EXPECT_THAT(running(engine), ElementsAre(2)) << "it lost its place to one that came later";
  engine.drain();
  EXPECT_EQ(engine.finished.size(), 3u);
  EXPECT_EQ(memory.fault(), "");
}

TEST(SchedulerAdapter, AFailedOneIsHandedOutForTheEngineToSayWhy) {
  SimulatedResidency memory(4, 0, {AdapterId{8}});
  SimulatedEngine engine(small(), {64, kBlockTokens}, &memory);
  add(engine, 1, 8, 3);
  add(engine, 2, 7, 3);
  add(engine, 3, 8, 3);
  engine.step();
  EXPECT_EQ(engine.scheduler.find(1), nullptr);
  ASSERT_EQ(engine.finished.size(), 2u);
  for (const auto& request : engine.finished) {
    EXPECT_TRUE(request->adapter_failed);
    EXPECT_EQ(request->finish_reason, FinishReason::kError);
    EXPECT_EQ(request->output_count(), 0);
    EXPECT_FALSE(memory.holds(*request));
  }
  engine.drain();
  EXPECT_EQ(engine.finished_request(2)->finish_reason, FinishReason::kLength);
  EXPECT_FALSE(engine.finished_request(2)->adapter_failed);
  EXPECT_EQ(engine.scheduler.stats().adapter_failures, 2);
  EXPECT_EQ(memory.holders(), 0u);
}

TEST(SchedulerAdapter, PreemptionKeepsTheHold) {
  SimulatedResidency memory(1, 0);
  SimulatedEngine engine(small(), {4, kBlockTokens}, &memory);
  add(engine, 1, 0, 8, 8);
  add(engine, 2, 7, 6, 8);
  engine.step();
  engine.step();
  ASSERT_EQ(engine.scheduler.find(2)->status, RequestStatus::kPreempted);
  EXPECT_TRUE(memory.holds(*engine.scheduler.find(2)));
  EXPECT_EQ(engine.scheduler.running_adapter_count(), 0);
  engine.drain();
  EXPECT_EQ(memory.fault(), "");  // it never asked again
  EXPECT_EQ(memory.holders(), 0u);
}

TEST(SchedulerAdapter, CancelReleasesOnceWhereverTheRequestIs) {
  SimulatedResidency memory(1, 1);
  SimulatedEngine engine(small(), {4, kBlockTokens}, &memory);
  add(engine, 1, 7, 9);
  engine.step();
  EXPECT_TRUE(engine.scheduler.cancel(1));  // while loading: nothing is held
  EXPECT_EQ(memory.holders(), 0u);

  add(engine, 2, 7, 9);
  engine.scheduler.schedule(engine.plan);
  EXPECT_TRUE(engine.scheduler.cancel(2));  // while its step runs: held until the step ends
  EXPECT_EQ(memory.holders(), 1u);
  engine.execute();
  engine.commit();
  EXPECT_EQ(memory.holders(), 0u);

  add(engine, 3, 0, 8, 8);
  add(engine, 4, 7, 6, 8);
  engine.step();
  engine.step();
  ASSERT_EQ(engine.scheduler.find(4)->status, RequestStatus::kPreempted);
  EXPECT_TRUE(engine.scheduler.cancel(4));
  EXPECT_EQ(memory.holders(), 0u);
  engine.drain();
  EXPECT_EQ(memory.fault(), "");
}

TEST(SchedulerAdapter, TheEndOfTheSchedulerReleasesWhatIsHeld) {
  SimulatedResidency memory(2, 0);
  {
    SimulatedEngine engine(small(), {16, kBlockTokens}, &memory);
    add(engine, 1, 7, 9);
    add(engine, 2, 8, 9);
    engine.step();
    engine.scheduler.schedule(engine.plan);
    engine.scheduler.cancel(2);
    EXPECT_EQ(memory.holders(), 2u);
  }
  EXPECT_EQ(memory.holders(), 0u);
  EXPECT_EQ(memory.fault(), "");
}

TEST(SchedulerAdapter, MaxLorasLimitsDistinctAdaptersNotRequests) {
  SchedulerConfig config = small();
  config.max_loras = 1;
  config.max_num_seqs = 8;
  SimulatedEngine engine(config, {64, kBlockTokens});  // without residency too
  add(engine, 1, 7, 3);
  add(engine, 2, 8, 3);
  add(engine, 3, 7, 5);
  add(engine, 4, 0, 9);
  add(engine, 5, 8, 3);
  engine.step();
  EXPECT_THAT(running(engine), ElementsAre(1, 3, 4));
  EXPECT_EQ(engine.scheduler.running_adapter_count(), 1);
  while (engine.scheduler.find(3) != nullptr) engine.step();
  engine.step();
  EXPECT_THAT(running(engine), ElementsAre(2, 4, 5));
  engine.scheduler.cancel(2);
  engine.scheduler.cancel(5);
  EXPECT_EQ(engine.scheduler.running_adapter_count(), 0);
  engine.drain();
}

// Whoever sets a key says what it stands for: the key's number is no adapter's.
TEST(SchedulerAdapter, AKeyWithoutAdaptersOrAdaptersWithoutAKeyAreRefused) {
  Scheduler scheduler(small(), {16, kBlockTokens});
  auto request = make_request(1, prompt(4), 2);
  use_adapters(*request, 7, {});
  EXPECT_EQ(scheduler.add(std::move(request)).code(), Code::kInternal);
  use_adapters(*request, 0, {7});
  EXPECT_EQ(scheduler.add(std::move(request)).code(), Code::kInternal);
  use_adapters(*request, 7, {7});
  EXPECT_TRUE(scheduler.add(std::move(request)).ok());
}

TEST(SchedulerAdapter, MaxLorasCountsAdaptersNotFactorsAndThoseOfMixes) {
  SchedulerConfig config = small();
  config.max_loras = 2;
  config.max_num_seqs = 8;
  SimulatedEngine engine(config, {64, kBlockTokens});
  const auto add_mix = [&](RequestId id, int32_t key, std::vector<int32_t> adapters) {
    return engine.scheduler.add(make_mix_request(id, prompt(4, static_cast<int32_t>(id) * 100), 3, key, std::move(adapters)));
  };
  for (RequestId id = 1; id <= 4; ++id) {
    ASSERT_TRUE(add_mix(id, 50 + static_cast<int32_t>(id), {7}).ok());  // four factors of one
  }
  ASSERT_TRUE(add_mix(5, 60, {8, 9}).ok());
  ASSERT_TRUE(add_mix(6, 61, {7, 8}).ok());
  engine.step();
  EXPECT_THAT(running(engine), ElementsAre(1, 2, 3, 4, 6));
  EXPECT_EQ(engine.scheduler.running_adapter_count(), 2);
  const Status refused = add_mix(7, 62, {7, 8, 9});
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), testing::AllOf(testing::HasSubstr("3 adapters"), testing::HasSubstr("max_loras")));
  engine.drain();
  EXPECT_EQ(engine.finished.size(), 6u);
  EXPECT_EQ(engine.scheduler.running_adapter_count(), 0);
}

// Room for two and a half: each mix needs all of it, and each finds one of its two adapters there.
TEST(SchedulerAdapter, TwoMixesDoNotWaitForEachOther) {
  for (const int load_steps : {0, 1, 3}) {
    std::map<AdapterId, int64_t> sizes;
    for (int32_t adapter = 1; adapter <= 4; ++adapter) sizes[AdapterId{adapter}] = 2;
    SimulatedResidency memory(5, load_steps, {}, sizes);
    SimulatedEngine engine(small(), {64, kBlockTokens}, &memory);
    for (int32_t adapter = 1; adapter <= 4; ++adapter) {
      add(engine, static_cast<RequestId>(adapter), adapter, 2);
      engine.drain();
    }
    ASSERT_TRUE(engine.add(make_mix_request(10, prompt(4, 1000), 3, 20, {1, 3})).ok());
    ASSERT_TRUE(engine.add(make_mix_request(11, prompt(4, 1100), 3, 21, {2, 4})).ok());
    engine.drain(50);
    EXPECT_EQ(engine.finished.size(), 6u);
    EXPECT_EQ(memory.fault(), "");
    EXPECT_EQ(memory.memory().voice_count(), 0u);
  }
}

// Adapter 7 is wanted all the time by requests that overlap, so its last user never leaves by itself.
void expect_no_starvation(SchedulerConfig config, SimulatedResidency* memory) {
  config.promote_after_steps = 20;
  SimulatedEngine engine(config, {64, kBlockTokens}, memory);
  add(engine, 100, 7, 7);
  engine.step();
  add(engine, 1, 8, 4);
  RequestId next = 101;
  for (int steps = 0; engine.finished_request(1) == nullptr; ++steps) {
    ASSERT_LT(steps, 60);
    while (engine.scheduler.waiting_count() < 6) {
      add(engine, next, 7, 5 + static_cast<int32_t>(next % 5));
      ++next;
    }
    engine.step();
  }
  EXPECT_GT(engine.scheduler.stats().adapter_drains, 0);
  EXPECT_EQ(engine.scheduler.stats().promotions, 1);
  if (memory != nullptr) {
    EXPECT_EQ(memory->fault(), "");
  }
}

TEST(SchedulerAdapter, APromotedRequestGetsTheRoomOfOthersAsTheyEnd) {
  SimulatedResidency memory(1, 2);
  expect_no_starvation(small(), &memory);
}

TEST(SchedulerAdapter, APromotedRequestGetsItsTurnUnderMaxLoras) {
  SchedulerConfig config = small();
  config.max_loras = 1;
  expect_no_starvation(config, nullptr);
}

TEST(SchedulerAdapter, NobodyDrainsForARequestThatFewHaveOvertaken) {
  SimulatedResidency memory(1, 0);
  SimulatedEngine engine(small(), {64, kBlockTokens}, &memory);
  add(engine, 1, 7, 30);
  add(engine, 2, 8, 4);
  for (RequestId id = 3; id < 10; ++id) add(engine, id, 7, 3);
  for (int i = 0; i < 10; ++i) engine.step();
  EXPECT_EQ(engine.finished.size(), 7u);
  EXPECT_EQ(engine.scheduler.stats().adapter_drains, 0);
}

TEST(SchedulerAdapter, AfterSoManyHaveOvertakenItsAdapterIsNext) {
  SchedulerConfig config = small();
  config.most_overtaking = 4;
  SimulatedResidency memory(1, 0);
  SimulatedEngine engine(config, {64, kBlockTokens}, &memory);
  add(engine, 1, 7, 30);
  add(engine, 2, 8, 4);
  for (RequestId id = 3; id < 10; ++id) add(engine, id, 7, 3);
  for (int i = 0; i < 28; ++i) engine.step();
  EXPECT_EQ(engine.finished.size(), 6u) << "3 to 5, and 6 to 8, who were let in together";
  EXPECT_GT(engine.scheduler.stats().adapter_drains, 0);
  EXPECT_EQ(engine.scheduler.stats().promotions, 0);
  while (engine.finished_request(2) == nullptr) engine.step();
  EXPECT_EQ(engine.finished_request(9), nullptr);
  engine.drain();
  EXPECT_EQ(memory.fault(), "");
}

TEST(SchedulerAdapter, WhileDrainingTheBaseGoesOn) {
  SchedulerConfig config = small();
  config.promote_after_steps = 2;
  SimulatedResidency memory(1, 0);
  SimulatedEngine engine(config, {64, kBlockTokens}, &memory);
  add(engine, 1, 7, 20);
  engine.step();
  add(engine, 2, 8, 4);
  for (int i = 0; i < 3; ++i) engine.step();
  ASSERT_TRUE(engine.scheduler.find(2)->promoted);
  add(engine, 3, 7, 4);
  add(engine, 4, 0, 4);
  engine.step();
  EXPECT_THAT(running(engine), ElementsAre(1, 4));
  engine.drain();
  EXPECT_EQ(memory.fault(), "");
}

TEST(SchedulerAdapter, WhileDrainingABaseRequestMoreUrgentThanThoseToLeaveWaits) {
  SchedulerConfig config = small();
  config.policy = Policy::kPriority;
  config.promote_after_steps = 2;
  SimulatedResidency memory(1, 0);
  SimulatedEngine engine(config, {64, kBlockTokens}, &memory);
  add(engine, 1, 7, 20, 4, 5);
  engine.step();
  add(engine, 2, 8, 4);
  for (int i = 0; i < 3; ++i) engine.step();
  ASSERT_TRUE(engine.scheduler.find(2)->promoted);
  add(engine, 3, 0, 4, 4, 0);
  add(engine, 4, 0, 4, 4, 9);
  engine.step();
  EXPECT_THAT(running(engine), ElementsAre(1, 4));
  engine.drain();
}

TEST(SchedulerAdapter, WhileDrainingUrgentBaseRequestsCannotTakeTheBlocksOfThoseToLeave) {
  // 2 waits for the adapter that 1 holds. Every base request is more urgent than 1 and would preempt it again and again.
  SchedulerConfig config = small();
  config.policy = Policy::kPriority;
  config.promote_after_steps = 10;
  SimulatedResidency memory(1, 0);
  SimulatedEngine engine(config, {8, kBlockTokens}, &memory);
  add(engine, 1, 7, 16, 12, 9);
  engine.step();
  add(engine, 2, 8, 4, 4, 9);
  RequestId next = 10;
  for (int steps = 0; engine.finished_request(2) == nullptr; ++steps) {
    ASSERT_LT(steps, 120);
    while (engine.scheduler.waiting_count() < 6) add(engine, next++, 0, 7, 5);
    engine.step();
  }
  EXPECT_GT(engine.scheduler.stats().preemptions, 0);
  EXPECT_NE(engine.finished_request(1), nullptr);
}

TEST(SchedulerAdapter, WhileDrainingAPreemptedHolderGoesOnAlone) {
  // Base requests preempt 1, which holds the adapter: from then on nobody may go in front of it.
  SchedulerConfig config = small();
  config.policy = Policy::kPriority;
  config.promote_after_steps = 6;
  SimulatedResidency memory(1, 0);
  SimulatedEngine engine(config, {8, kBlockTokens}, &memory);
  add(engine, 1, 7, 16, 12, 9);
  engine.step();
  add(engine, 2, 8, 4, 4, 9);
  for (RequestId id = 10; id < 14; ++id) add(engine, id, 0, 9, 8, 1);
  for (int i = 0; i < 8; ++i) engine.step();
  ASSERT_TRUE(engine.scheduler.find(2)->promoted);
  ASSERT_EQ(engine.scheduler.find(1)->status, RequestStatus::kPreempted);
  ASSERT_FALSE(engine.scheduler.find(2)->holds_adapter);
  const std::vector<RequestId> before = running(engine);
  RequestId next = 20;
  while (engine.scheduler.find(1) != nullptr && engine.scheduler.find(1)->status == RequestStatus::kPreempted) {
    add(engine, next++, 0, 2, 1, 0);
    ASSERT_LT(next, 31u);
    engine.step();
    for (const RequestId id : running(engine)) EXPECT_TRUE(id == 1 || std::ranges::find(before, id) != before.end()) << id;
  }
  engine.drain();
  EXPECT_EQ(memory.fault(), "");
}

}  // namespace
}  // namespace choral::sched
