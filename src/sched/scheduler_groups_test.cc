// Groups: a leader and followers that go on from one another. The simulated model's KV tells whether what they share, cut off and
// compute again is theirs.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <random>

#include "sched/simulated_engine_test.h"

namespace choral::sched {
namespace {

constexpr int32_t kBlockTokens = 4;

SchedulerConfig small() {
  SchedulerConfig config;
  config.max_num_seqs = 6;
  config.max_num_batched_tokens = 24;
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

std::unique_ptr<Request> make_group(RequestId id, int32_t prompt_tokens, int32_t max_tokens, int32_t width, int32_t adapter = 0) {
  auto leader = make_request(id, prompt(prompt_tokens, 100 + static_cast<int32_t>(id)), max_tokens, adapter);
  for (int32_t i = 1; i < width; ++i) {
    leader->followers.push_back(std::make_unique<Request>());
    leader->followers.back()->id = id * 1000 + static_cast<RequestId>(i);
  }
  return leader;
}

// What a search does, with chance in the place of likelihood: each round some members go on from others.
class GroupEngine : public SimulatedEngine {
 public:
  using SimulatedEngine::SimulatedEngine;

  void commit() {
    scheduler.on_computed(plan);
    for (const PlanItem& item : plan.items()) {
      Request& request = *item.request;
      if (request.finished()) continue;
      rows += item.token_count;
      if (!item.needs_logits) {
        scheduler.share(request);
      } else if (request.lead().followers.empty()) {
        end_round_of_one(request);
      } else {
        take(request);
      }
    }
    take_finished();
  }
  void step() {
    scheduler.schedule(plan);
    execute();
    expect_groups_whole();
    commit();
  }
  void drain(int most = 4000) {
    for (; scheduler.has_work() && most > 0; --most) {
      step();
      if (testing::Test::HasFailure()) return;
    }
    ASSERT_FALSE(scheduler.has_work()) << "requests starve";
    EXPECT_EQ(scheduler.cache().free_blocks(), scheduler.cache().block_count());
  }
  int64_t rows = 0;
  std::mt19937 chance{7};

 private:
  static std::vector<Request*> members(Request& leader) {
    std::vector<Request*> all{&leader};
    for (const auto& follower : leader.followers) all.push_back(follower.get());
    return all;
  }
  void end_round_of_one(Request& request) {
    const int32_t token = static_cast<int32_t>(chance() % 50);
    scheduler.commit(request, {&token, 1});
    if (request.at_length_limit()) scheduler.finish(request, FinishReason::kLength);
  }
  void take(Request& member) {
    Request& leader = member.lead();
    member.sits_out = true;
    const bool is_first = leader.followers.front()->tokens.empty();
    if (&member == &leader && !is_first) {
      for (const auto& follower : leader.followers) {
        if (follower->computed_count == 0 && follower->sits_out) scheduler.join(*follower);
      }
    }
    const auto all = members(leader);
    const auto is_done = [](const Request* one) { return one->sits_out && one->remaining() == 0 && !one->tokens.empty(); };
    if (!is_first && !std::all_of(all.begin(), all.end(), is_done)) return;
    if (leader.token_count() + 1 == leader.max_length) return scheduler.finish(leader, FinishReason::kLength);
    std::vector<Scheduler::Branch> next(all.size());
    const size_t from = is_first ? 0 : chance() % all.size();
    for (size_t i = 0; i < all.size(); ++i) {
      const bool leaves = is_first ? i > 0 : i != from && chance() % 3 == 0;
      next[i] = {leaves ? all[from] : all[i], static_cast<int32_t>(chance() % 50)};
    }
    scheduler.branch(leader, next);
  }
  // All members run or none does, side by side.
  void expect_groups_whole() const {
    const auto running = scheduler.running();
    for (size_t i = 0; i < running.size(); i += static_cast<size_t>(running[i]->width())) {
      ASSERT_EQ(&running[i]->lead(), running[i]) << "a group begins with its leader";
      for (int32_t k = 1; k < running[i]->width(); ++k)
        ASSERT_EQ(running[i + static_cast<size_t>(k)], running[i]->followers[static_cast<size_t>(k) - 1].get());
    }
  }
};

TEST(SchedulerGroups, MembersShareWholeBlocksAndComputeTheRest) {
  GroupEngine engine(small(), {40, kBlockTokens});
  ASSERT_TRUE(engine.scheduler.add(make_group(1, 10, 3, 4)).ok());
  engine.step();  // the prompt
  const Request& leader = *engine.scheduler.running().front();
  ASSERT_EQ(leader.followers.size(), 3u);
  for (const auto& follower : leader.followers) {
    EXPECT_EQ(follower->computed_count, 8);
    EXPECT_EQ(follower->block_tables[0][1], leader.block_tables[0][1]);
    EXPECT_EQ(follower->token_count(), 11);
  }
  EXPECT_EQ(engine.scheduler.cache().ref_count(leader.block_tables[0][0]), 4);
  engine.step();
  EXPECT_EQ(engine.plan.total_tokens(), 1 + 3 * 3);
  EXPECT_EQ(engine.plan.new_prompt_tokens(), 0) << "the prompt's last tokens are no new ones for them";
  engine.drain();
  EXPECT_EQ(engine.finished.size(), 1u);
}

TEST(SchedulerGroups, WhoGoesOnFromAnotherKeepsWhatIsTheSame) {
  GroupEngine engine(small(), {40, kBlockTokens});
  ASSERT_TRUE(engine.scheduler.add(make_group(1, 8, 12, 2)).ok());
  engine.step();
  engine.step();
  Request& leader = *engine.scheduler.running().front();
  Request& follower = *leader.followers.front();
  // Both have one token behind the prompt, and another one behind that; now the follower takes the leader's.
  leader.tokens = {leader.tokens.begin(), leader.tokens.begin() + 8};
  leader.tokens.insert(leader.tokens.end(), {1, 2});
  follower.tokens = leader.tokens;
  follower.tokens.back() = 3;
  engine.scheduler.schedule(engine.plan);
  engine.scheduler.on_computed(engine.plan);
  const auto own = follower.block_tables[0][2];
  const std::vector<Scheduler::Branch> next{{&leader, 4}, {&leader, 5}};
  engine.scheduler.branch(leader, next);
  EXPECT_EQ(follower.tokens, (std::vector<int32_t>{101, 102, 103, 104, 105, 106, 107, 108, 1, 2, 5}));
  EXPECT_EQ(follower.computed_count, 9) << "of its own block it keeps the token that both have";
  EXPECT_EQ(follower.block_tables[0][2], own);
  EXPECT_NE(follower.block_tables[0][2], leader.block_tables[0][2]);
  engine.scheduler.finish(follower, FinishReason::kCancelled);
  EXPECT_EQ(leader.finish_reason, FinishReason::kCancelled) << "a group ends as a whole";
}

TEST(SchedulerGroups, AGroupGivesWayAsAWholeAndComesBack) {
  GroupEngine engine(small(), {11, kBlockTokens});
  ASSERT_TRUE(engine.scheduler.add(make_request(1, prompt(12, 1), 28)).ok());
  ASSERT_TRUE(engine.scheduler.add(make_group(2, 8, 8, 3)).ok());
  for (int i = 0; i < 60 && engine.scheduler.stats().preemptions == 0; ++i) engine.step();
  ASSERT_EQ(engine.scheduler.stats().preemptions, 1) << "one, however many members";
  Request& group = *engine.scheduler.find(2);
  EXPECT_EQ(engine.scheduler.running_count(), 1);
  EXPECT_EQ(engine.scheduler.waiting_count(), 3);
  EXPECT_FALSE(group.sits_out);
  for (const auto& follower : group.followers) {
    EXPECT_EQ(follower->status, RequestStatus::kPreempted);
    EXPECT_TRUE(follower->block_tables[0].empty());
  }
  engine.drain();
  EXPECT_EQ(engine.finished_request(2)->output_count(), 7);
}

TEST(SchedulerGroups, AGroupIsLetInWithPlacesForAll) {
  GroupEngine engine(small(), {60, kBlockTokens});
  for (RequestId id = 1; id <= 3; ++id) ASSERT_TRUE(engine.scheduler.add(make_request(id, prompt(4, 1), 6)).ok());
  ASSERT_TRUE(engine.scheduler.add(make_group(9, 4, 6, 4)).ok());
  ASSERT_TRUE(engine.scheduler.add(make_request(10, prompt(4, 1), 6)).ok());
  engine.step();
  EXPECT_EQ(engine.scheduler.running_count(), 3) << "there are six places; nobody goes before the group";
  engine.drain();
  EXPECT_EQ(engine.finished.size(), 5u);
  const auto wide = engine.scheduler.add(make_group(11, 4, 6, 7));
  EXPECT_EQ(wide.code(), Code::kInvalidArgument) << wide.to_string();
}

// Of three with 16 tokens each holds four blocks, and two of the prompt's are one for all.
TEST(SchedulerGroups, WhatItNeedsAtMostIsThere) {
  EXPECT_TRUE(GroupEngine(small(), {8, kBlockTokens}).scheduler.add(make_group(1, 8, 9, 3)).ok());
  EXPECT_EQ(GroupEngine(small(), {7, kBlockTokens}).scheduler.add(make_group(1, 8, 9, 3)).code(), Code::kTooLarge);
  // Where a window is seen, the other may have given back what one needs of the prompt.
  EXPECT_TRUE(GroupEngine(small(), {24, kBlockTokens, {0, 6}}).scheduler.add(make_group(1, 8, 9, 3)).ok());
  EXPECT_EQ(GroupEngine(small(), {23, kBlockTokens, {0, 6}}).scheduler.add(make_group(1, 8, 9, 3)).code(), Code::kTooLarge);
}

TEST(SchedulerGroups, OfAGroupThePromptIsShared) {
  GroupEngine engine(small(), {60, kBlockTokens});
  ASSERT_TRUE(engine.scheduler.add(make_group(1, 9, 16, 3)).ok());
  engine.drain();
  EXPECT_EQ(engine.scheduler.cache().cached_blocks(), 2);
  auto again = make_request(2, prompt(9, 101), 4);
  ASSERT_TRUE(engine.scheduler.add(std::move(again)).ok());
  engine.drain();
  EXPECT_EQ(engine.finished_request(2)->cached_prompt_tokens, 8);
}

// Whatever their sizes, neighbours and adapters: every position is computed once it is read, by the weights that act there, in
// blocks of its own; all end, and no block is left.
void any_groups_end(const cache::KvPoolShape& pool) {
  SchedulerConfig config = small();
  config.enable_prefix_caching = *rc::gen::arbitrary<bool>();
  GroupEngine engine(config, pool);
  engine.chance.seed(*rc::gen::arbitrary<uint32_t>());
  const auto count = *rc::gen::inRange<RequestId>(1, 8);
  for (RequestId id = 1; id <= count; ++id) {
    const int32_t width = *rc::gen::element(1, 1, 2, 3, 4), tokens = *rc::gen::inRange(1, 20);
    auto group = make_group(id % 3 == 0 ? 1 + id : id, tokens, *rc::gen::inRange(1, 20), width, *rc::gen::inRange(0, 2));
    if (group->adapter_key != kBaseKey && *rc::gen::arbitrary<bool>()) {
      group->activation_token = tokens / 2;
      if (tokens / 2 > 0) group->activated_root = std::exchange(group->prefix_root, root_of(0));
    }
    const Status added = engine.scheduler.add(std::move(group));
    RC_ASSERT(added.ok() || added.code() == Code::kTooLarge || added.code() == Code::kAlreadyExists);
  }
  for (int i = 0; i < 4000 && engine.scheduler.has_work(); ++i) {
    if (*rc::gen::weightedElement<bool>({{1, true}, {60, false}})) engine.scheduler.cancel(*rc::gen::inRange<RequestId>(1, 9));
    engine.step();
    RC_ASSERT(!testing::Test::HasFailure());
  }
  RC_ASSERT(!engine.scheduler.has_work());
  engine.take_finished();
  RC_ASSERT(engine.scheduler.cache().free_blocks() == engine.scheduler.cache().block_count());
}

RC_GTEST_PROP(SchedulerGroups, AnyGroupsEnd, ()) { any_groups_end({24, kBlockTokens}); }
RC_GTEST_PROP(SchedulerGroups, AnyGroupsEndWhereWindowsAreSeen, ()) { any_groups_end({60, kBlockTokens, {0, 6}}); }

}  // namespace
}  // namespace choral::sched
