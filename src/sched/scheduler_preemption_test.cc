#include <gtest/gtest.h>

#include <numeric>

#include "sched/fair_share.h"
#include "sched/simulated_engine_test.h"

namespace choral::sched {
namespace {

constexpr int32_t kBlockTokens = 4;

SchedulerConfig small() {
  SchedulerConfig config;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 32;
  config.max_model_len = 64;
  config.max_waiting = 64;
  config.watermark_blocks = 0;
  return config;
}

std::vector<int32_t> prompt(int32_t count, int32_t start) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), start);
  return ids;
}

void add(SimulatedEngine& engine, RequestId id, std::vector<int32_t> ids, int32_t max_tokens, int32_t priority = 0) {
  ASSERT_TRUE(engine.scheduler.add(make_request(id, std::move(ids), max_tokens, 0, priority)).ok());
}

void expect_right_answers(const SimulatedEngine& engine) {
  for (const auto& request : engine.finished) {
    EXPECT_EQ(std::vector(request->output().begin(), request->output().end()),
              expected_output(*request, request->prompt(), request->max_tokens))
        << "request " << request->id;
  }
}

TEST(SchedulerPreemption, TheLatestArrivalGivesWayAndAnswersTheSame) {
  SimulatedEngine engine(small(), {4, kBlockTokens});
  add(engine, 1, prompt(8, 100), 8);
  add(engine, 2, prompt(8, 200), 6);
  engine.step();
  engine.scheduler.schedule(engine.plan);  // 1 needs a fifth block
  const Request& two = *engine.scheduler.find(2);
  EXPECT_EQ(engine.scheduler.stats().preemptions, 1);
  EXPECT_EQ(two.status, RequestStatus::kPreempted);
  EXPECT_EQ(two.computed_count, 0);
  EXPECT_TRUE(two.block_tables[0].empty());
  EXPECT_EQ(two.output_count(), 1);  // what it said stays said
  ASSERT_EQ(engine.plan.items().size(), 1u);
  EXPECT_EQ(engine.plan.items()[0].request->id, 1u);
  engine.execute();
  engine.commit();
  engine.drain();
  EXPECT_EQ(engine.finished_request(2)->preemption_count, 1);
  expect_right_answers(engine);
}

TEST(SchedulerPreemption, TheLeastUrgentGivesWayEvenIfItCameFirst) {
  SchedulerConfig config = small();
  config.policy = Policy::kPriority;
  SimulatedEngine engine(config, {4, kBlockTokens});
  add(engine, 1, prompt(8, 100), 6, 5);
  add(engine, 2, prompt(8, 200), 8, 0);
  engine.step();
  engine.step();
  EXPECT_EQ(engine.scheduler.find(1)->status, RequestStatus::kPreempted);
  EXPECT_EQ(engine.scheduler.find(2)->status, RequestStatus::kRunning);
  engine.drain();
  expect_right_answers(engine);
}

TEST(SchedulerPreemption, TheLeastUrgentItselfPausesAndKeepsItsBlocks) {
  SimulatedEngine engine(small(), {4, kBlockTokens});
  add(engine, 1, prompt(5, 100), 4);  // ends within its two blocks
  add(engine, 2, prompt(8, 200), 6);
  engine.step();
  engine.step();  // 2 would need a third block
  EXPECT_EQ(engine.scheduler.stats().pauses, 1);
  EXPECT_EQ(engine.scheduler.stats().preemptions, 0);
  EXPECT_EQ(engine.scheduler.find(2)->computed_count, 8);
  engine.drain();
  EXPECT_EQ(engine.scheduler.stats().preemptions, 0);
  expect_right_answers(engine);
}

TEST(SchedulerPreemption, ResumptionGetsItsOwnPrefixBack) {
  SimulatedEngine engine(small(), {6, kBlockTokens});
  add(engine, 1, prompt(8, 100), 4);
  add(engine, 2, prompt(15, 200), 6);  // 4 blocks
  engine.step();
  engine.scheduler.schedule(engine.plan);  // 1 takes the last block of 2
  ASSERT_EQ(engine.scheduler.find(2)->status, RequestStatus::kPreempted);
  engine.execute();
  engine.commit();
  while (engine.scheduler.find(2)->status != RequestStatus::kRunning) {
    engine.scheduler.schedule(engine.plan);
    const Request& two = *engine.scheduler.find(2);
    if (two.status == RequestStatus::kRunning) {
      EXPECT_EQ(two.computed_count, 12);  // three of its blocks survived
    }
    EXPECT_EQ(two.cached_prompt_tokens, 0);  // reported to the client: hits of the first admission only
    engine.execute();
    engine.commit();
  }
  EXPECT_EQ(engine.scheduler.cache().stats().queries, 2);
  engine.drain();
  expect_right_answers(engine);
}

TEST(SchedulerPreemption, NobodyIsAdmittedInAStepThatPreempts) {
  SchedulerConfig config = small();
  config.policy = Policy::kPriority;
  config.max_num_seqs = 2;
  SimulatedEngine engine(config, {4, kBlockTokens});
  add(engine, 1, prompt(8, 100), 8, 0);
  add(engine, 2, prompt(8, 200), 6, 5);
  engine.step();
  add(engine, 3, prompt(1, 300), 1, 1);  // more urgent than 2, and there is room in what 2 gives back
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(engine.scheduler.stats().preemptions, 1);
  EXPECT_EQ(engine.plan.items().size(), 1u);
  engine.execute();
  engine.commit();
  engine.scheduler.schedule(engine.plan);
  EXPECT_EQ(engine.plan.items().size(), 2u);
  engine.execute();
  engine.commit();
  engine.drain();
  expect_right_answers(engine);
}

TEST(SchedulerFairness, AFloodOfUrgentRequestsDoesNotStarveAPatientOne) {
  SchedulerConfig config = small();
  config.policy = Policy::kPriority;
  config.max_num_seqs = 2;
  config.promote_after_steps = 20;
  SimulatedEngine engine(config, {8, kBlockTokens});
  add(engine, 1, prompt(8, 100), 4, 1'000'000);
  int steps = 0;
  for (RequestId next = 2; engine.finished_request(1) == nullptr; ++steps) {
    ASSERT_LT(steps, 60);
    while (engine.scheduler.waiting_count() < 8) {
      add(engine, next, prompt(8, static_cast<int32_t>(next * 100)), 4, 0);
      ++next;
    }
    engine.step();
  }
  EXPECT_GT(steps, 20);  // and yet urgent ones went first
  EXPECT_EQ(engine.scheduler.stats().promotions, 1);
  engine.drain();
  expect_right_answers(engine);
}

TEST(SchedulerFairness, APromotedLongRequestIsNotOvertakenForEver) {
  // It needs all blocks: everybody else must drain first, newcomers may not slip in.
  SchedulerConfig config = small();
  config.promote_after_steps = 10;
  SimulatedEngine engine(config, {8, kBlockTokens});
  for (RequestId id = 100; id < 104; ++id) add(engine, id, prompt(4, static_cast<int32_t>(id * 100)), 4);
  add(engine, 1, prompt(28, 1), 5);
  int steps = 0;
  for (RequestId next = 200; engine.finished_request(1) == nullptr; ++steps) {
    ASSERT_LT(steps, 60);
    while (engine.scheduler.waiting_count() < 8) {
      auto request = make_request(next, prompt(4, static_cast<int32_t>(next * 100)), 4, static_cast<int32_t>(next));
      ++next;  // each of a fresh adapter, whose account is never above the long one's
      ASSERT_TRUE(engine.scheduler.add(std::move(request)).ok());
    }
    engine.step();
  }
  engine.drain();
}

TEST(SchedulerFairness, OnlyOneIsPromotedAtATime) {
  SchedulerConfig config = small();
  config.policy = Policy::kPriority;
  config.max_num_seqs = 1;
  config.promote_after_steps = 3;
  SimulatedEngine engine(config, {8, kBlockTokens});
  for (RequestId id = 1; id <= 6; ++id) add(engine, id, prompt(4, static_cast<int32_t>(100 * id)), 4, 9);
  while (engine.scheduler.has_work()) {
    engine.step();
    int promoted = 0;
    for (RequestId id = 1; id <= 6; ++id) {
      const Request* request = engine.scheduler.find(id);
      if (request != nullptr && request->promoted) ++promoted;
    }
    EXPECT_LE(promoted, 1);
  }
  EXPECT_GE(engine.scheduler.stats().promotions, 4);
}

TEST(SchedulerFairness, AccountsPayForComputedInputOnceAndForOutputDouble) {
  SimulatedEngine engine(small(), {32, kBlockTokens});
  add(engine, 1, prompt(12, 100), 3);
  engine.step();
  engine.step();
  EXPECT_EQ(engine.scheduler.find(1)->share->virtual_tokens(), 12 + 2 * 2);
  add(engine, 2, prompt(12, 100), 3);  // 8 tokens are cached
  engine.step();
  EXPECT_EQ(engine.scheduler.find(2)->share->virtual_tokens(), 16 + 2 + 4 + 2);
}

// One user asks for adapter 1 with a factor, or company, never seen before each time; another for plain 2, and has fewer waiting.
TEST(SchedulerFairness, NewFactorsAndNewCompanyAreNoNewAccounts) {
  for (const bool paired : {false, true}) {
    for (const int32_t max_loras : {0, 2}) {
      SchedulerConfig config = small();
      config.max_num_seqs = 4;
      config.max_waiting = 64;
      config.max_loras = paired ? 0 : max_loras;
      SimulatedEngine engine(config, {256, kBlockTokens});
      int32_t live[3] = {}, next_key = 100;
      int64_t tokens[3] = {};
      RequestId next = 1;
      const auto add_one = [&](int32_t adapter) {
        auto request = make_request(next, prompt(4, static_cast<int32_t>(next) * 10), 4, adapter);
        if (adapter == 1) {
          use_adapters(*request, next_key++, {1});
          if (paired) request->adapter_ids.push_back(AdapterId{10 + next_key % 16});
        }
        ASSERT_TRUE(engine.scheduler.add(std::move(request)).ok());
        ++live[adapter];
        ++next;
      };
      for (int step = 0; step < 400; ++step) {
        while (live[1] < 24) add_one(1);
        while (live[2] < 6) add_one(2);
        engine.step();
        for (const auto& request : engine.finished) {
          const int32_t adapter = request->adapter_ids.front().value();
          --live[adapter];
          tokens[adapter] += request->output_count();
        }
        engine.finished.clear();
      }
      EXPECT_GT(tokens[1] + tokens[2], 1000);
      EXPECT_NEAR(static_cast<double>(tokens[2]), static_cast<double>(tokens[1]), 0.05 * static_cast<double>(tokens[1]))
          << "paired " << paired << ", max_loras " << max_loras;
    }
  }
}

TEST(SchedulerFairness, FinishedRequestsLeaveTheirAccount) {
  SimulatedEngine engine(small(), {32, kBlockTokens});
  const auto add_for = [&](RequestId id, int32_t count, int32_t outputs) {
    const auto adapter = static_cast<int32_t>(id);
    ASSERT_TRUE(engine.scheduler.add(make_request(id, prompt(count, 100 * adapter), outputs, adapter)).ok());
  };
  add_for(1, 1, 1);
  add_for(2, 20, 9);
  engine.step();
  ASSERT_NE(engine.finished_request(1), nullptr);
  add_for(3, 1, 1);  // level with 2, the only active one, not with 1
  EXPECT_EQ(engine.scheduler.find(3)->share->virtual_tokens(), 22);
  engine.drain();
}

TEST(SchedulerFairness, EachTokenIsProgressThatPostponesPromotion) {
  SimulatedEngine engine(small(), {32, kBlockTokens});
  add(engine, 1, prompt(4, 100), 9);
  for (int i = 0; i < 5; ++i) engine.step();
  EXPECT_EQ(engine.scheduler.find(1)->last_progress_step, 5u);
}

void add_to_background(SimulatedEngine& engine, RequestId id, std::vector<int32_t> ids, int32_t max_tokens) {
  auto request = make_request(id, std::move(ids), max_tokens);
  request->in_background = true;
  ASSERT_TRUE(engine.scheduler.add(std::move(request)).ok());
}

TEST(SchedulerBackground, GivesItsPlaceToWhoeverWaitsForOne) {
  for (const Policy policy : {Policy::kFcfs, Policy::kPriority}) {
    SchedulerConfig config = small();
    config.policy = policy;
    SimulatedEngine engine(config, {64, kBlockTokens});
    for (RequestId id = 1; id <= 6; ++id) add_to_background(engine, id, prompt(4, static_cast<int32_t>(100 * id)), 20);
    engine.step();
    ASSERT_EQ(engine.scheduler.running_count(), config.max_num_seqs);
    add(engine, 11, prompt(4, 1000), 4, 9);
    add(engine, 12, prompt(4, 2000), 4, 9);
    engine.step();  // finds no place
    engine.step();
    engine.step();
    EXPECT_EQ(engine.scheduler.find(11)->status, RequestStatus::kRunning);
    EXPECT_EQ(engine.scheduler.find(12)->status, RequestStatus::kRunning);
    EXPECT_EQ(engine.scheduler.stats().preemptions, 2);
    engine.drain();
    expect_right_answers(engine);
  }
}

TEST(SchedulerBackground, GivesItsBlocksToWhoeverWaitsForThem) {
  SimulatedEngine engine(small(), {8, kBlockTokens});
  add_to_background(engine, 1, prompt(12, 100), 4);
  add_to_background(engine, 2, prompt(12, 200), 4);
  engine.step();
  add(engine, 11, prompt(24, 1000), 2);
  engine.step();
  engine.step();
  engine.step();
  EXPECT_EQ(engine.scheduler.find(11)->status, RequestStatus::kRunning);
  EXPECT_EQ(engine.scheduler.find(1)->status, RequestStatus::kPreempted);
  engine.drain();
  expect_right_answers(engine);
}

TEST(SchedulerBackground, IsNeverPromoted) {
  SchedulerConfig config = small();
  config.max_num_seqs = 1;
  config.promote_after_steps = 4;
  SimulatedEngine engine(config, {64, kBlockTokens});
  add_to_background(engine, 1, prompt(4, 100), 4);
  for (RequestId id = 2; id < 12; ++id) add(engine, id, prompt(4, static_cast<int32_t>(100 * id)), 8);
  engine.drain();
  ASSERT_EQ(engine.finished.size(), 11u);
  EXPECT_EQ(engine.finished.back()->id, 1u);
  expect_right_answers(engine);
}

}  // namespace
}  // namespace choral::sched
