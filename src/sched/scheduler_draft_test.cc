// Guessed tokens in a step: what comes true of them is computed, the rest leaves nothing behind.
#include <gmock/gmock.h>

#include <algorithm>

#include "sched/scheduler.h"

namespace choral::sched {
namespace {

class SchedulerDraft : public ::testing::Test {
 protected:
  explicit SchedulerDraft(const cache::KvPoolShape& pool = {.blocks = 8, .block_tokens = 4}) : scheduler_(config(), pool) {
    auto request = std::make_unique<Request>();
    request->id = 1;
    request->tokens = {5, 6, 7};
    request->max_tokens = 20;
    request_ = request.get();
    EXPECT_TRUE(scheduler_.add(std::move(request)).ok());
    step();
    scheduler_.commit(*request_, std::vector<int32_t>{10});
  }
  static SchedulerConfig config() {
    SchedulerConfig config;
    config.max_num_seqs = 2;
    config.max_num_batched_tokens = 6;
    config.max_model_len = 100;
    config.max_waiting = 2;
    return config;
  }
  void guess(const std::vector<int32_t>& tokens) {
    std::copy(tokens.begin(), tokens.end(), request_->guesses.begin());
    request_->guess_count = static_cast<int32_t>(tokens.size());
  }
  // How many guesses it had room for.
  int32_t step() {
    scheduler_.schedule(plan_);
    EXPECT_EQ(plan_.items().size(), 1U);
    const int32_t drafts = plan_.items()[0].draft_count;
    scheduler_.on_computed(plan_);
    return drafts;
  }

  Scheduler scheduler_;
  StepPlan plan_;
  Request* request_ = nullptr;
};

TEST_F(SchedulerDraft, WhatCameTrueIsComputedAndTheBlocksOfTheRestAreFree) {
  guess({11, 12, 13, 14, 15});
  EXPECT_EQ(step(), 5);
  EXPECT_EQ(scheduler_.cache().free_blocks(), 8 - 3) << "nine tokens have a place";
  EXPECT_EQ(scheduler_.commit(*request_, std::vector<int32_t>{11, 99}, 5), 1);
  EXPECT_EQ(request_->computed_count, 5);
  EXPECT_EQ(request_->remaining(), 1);
  EXPECT_EQ(scheduler_.cache().free_blocks(), 8 - 2);
}

TEST_F(SchedulerDraft, AllMayComeTrue) {
  guess({11, 12});
  EXPECT_EQ(step(), 2);
  EXPECT_EQ(scheduler_.commit(*request_, std::vector<int32_t>{11, 12, 13}, 2), 2);
  EXPECT_EQ(request_->computed_count, 6);
  EXPECT_EQ(request_->remaining(), 1);
}

// Blocks of four: the prompt and a token fill the first, guesses the next.
TEST_F(SchedulerDraft, WhatIsGuessedIsFoundByNobodyUntilItCameTrue) {
  auto request = std::make_unique<Request>();
  request->id = 2;
  request->tokens = {5, 6, 7};
  request->prefix_root = cache::make_prefix_root({}, "");
  scheduler_.cancel(1);
  request_ = request.get();
  ASSERT_TRUE(scheduler_.add(std::move(request)).ok());
  step();
  scheduler_.commit(*request_, std::vector<int32_t>{10});
  guess({11, 12, 13, 14, 15});
  EXPECT_EQ(step(), 5);
  EXPECT_EQ(scheduler_.cache().cached_blocks(), 0) << "nothing is judged yet";
  scheduler_.commit(*request_, std::vector<int32_t>{11, 12, 99}, 5);
  EXPECT_EQ(scheduler_.cache().cached_blocks(), 1) << "{5, 6, 7, 10}; in the other block is what was wrong";
  guess({100, 101});
  EXPECT_EQ(step(), 2);
  scheduler_.commit(*request_, std::vector<int32_t>{98}, 2);
  EXPECT_EQ(scheduler_.cache().cached_blocks(), 1);
  guess({97});
  EXPECT_EQ(step(), 1);
  scheduler_.commit(*request_, std::vector<int32_t>{97, 96}, 1);
  EXPECT_EQ(scheduler_.cache().cached_blocks(), 2) << "{11, 12, 99, 98}";
}

// Of layers with states: there are places for one request and its guesses.
class SchedulerDraftOfStates : public SchedulerDraft {
 protected:
  SchedulerDraftOfStates() : SchedulerDraft({.blocks = 8, .block_tokens = 4, .state_slots = 2}) {}
};

TEST_F(SchedulerDraftOfStates, WhenAllComeTrueTheStateBehindThemIsTheRequests) {
  guess({11, 12});
  const int32_t before = request_->state_slot;
  scheduler_.schedule(plan_);
  const int32_t behind = request_->guess_slot;
  EXPECT_NE(behind, before);
  EXPECT_EQ(scheduler_.states().free_count(), 0);
  scheduler_.on_computed(plan_);
  EXPECT_EQ(scheduler_.commit(*request_, std::vector<int32_t>{11, 12, 13}, 2), 2);
  EXPECT_EQ(request_->state_from, behind);
  EXPECT_EQ(request_->computed_count, 6);
  EXPECT_EQ(scheduler_.states().free_count(), 1);
}

TEST_F(SchedulerDraftOfStates, WhenOneDoesNotWhatCameTrueIsComputedAgain) {
  guess({11, 12});
  const int32_t before = request_->state_slot;
  EXPECT_EQ(step(), 2);
  EXPECT_EQ(scheduler_.commit(*request_, std::vector<int32_t>{11, 99}, 2), 1);
  EXPECT_EQ(request_->state_from, before);
  EXPECT_EQ(request_->computed_count, 4);
  EXPECT_EQ(request_->remaining(), 2);
  EXPECT_EQ(scheduler_.states().free_count(), 1);
  scheduler_.schedule(plan_);
  EXPECT_EQ(plan_.items()[0].token_count, 2);
  EXPECT_TRUE(plan_.items()[0].needs_logits);
}

TEST_F(SchedulerDraftOfStates, WithoutAPlaceThereAreNoGuesses) {
  auto other = std::make_unique<Request>();
  other->id = 2;
  other->tokens = {5, 6, 7};
  other->max_tokens = 20;
  ASSERT_TRUE(scheduler_.add(std::move(other)).ok());
  guess({11, 12});
  scheduler_.schedule(plan_);
  for (const PlanItem& item : plan_.items()) EXPECT_EQ(item.draft_count, 0);
  EXPECT_EQ(plan_.items().size(), 2U);
}

TEST_F(SchedulerDraft, GuessesTakeNoMoreRowsThanAreLeft) {
  guess({11, 12, 13, 14, 15, 16, 17, 18});
  EXPECT_EQ(step(), 5) << "of a step's six tokens one is known";
}

}  // namespace
}  // namespace choral::sched
