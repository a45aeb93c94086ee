#include "sched/waiting_queue.h"

#include <gtest/gtest.h>

#include "sched/fair_share.h"

namespace choral::sched {
namespace {

// A share with an account of its own.
struct OwnShare {
  ShareAccount account;
  Share share{.accounts = {&account}};
};

class WaitingQueueTest : public testing::Test {
 protected:
  Request& request(uint64_t arrival, int32_t priority = 0, OwnShare* own = nullptr) {
    auto& r = *owned_.emplace_back(std::make_unique<Request>());
    r.arrival = arrival;
    r.priority = priority;
    r.share = own == nullptr ? &base_.share : &own->share;
    return r;
  }
  OwnShare base_;
  std::vector<std::unique_ptr<Request>> owned_;
};

TEST_F(WaitingQueueTest, ArrivalDecidesUnderFcfs) {
  WaitingQueue queue({});
  Request &late = request(2, -5), &early = request(1, 5);
  queue.push(late);
  queue.push(early);
  EXPECT_EQ(queue.next(1), &early);
  queue.remove(early);
  EXPECT_EQ(queue.next(1), &late);
  queue.remove(late);
  EXPECT_EQ(queue.next(1), nullptr);
}

TEST_F(WaitingQueueTest, EachRuleOutranksTheNext) {
  SchedulerConfig config;
  config.policy = Policy::kPriority;
  WaitingQueue queue(config);
  OwnShare poor;
  base_.account.virtual_tokens = 10;
  Request& by_arrival = request(1, 3);
  Request& by_share = request(2, 3, &poor);
  Request& by_preemption = request(3, 3);
  by_preemption.status = RequestStatus::kPreempted;
  Request& by_priority = request(4, 2);
  Request& by_promotion = request(5, 9);
  by_promotion.promoted = true;
  for (Request* r : {&by_arrival, &by_share, &by_preemption, &by_priority, &by_promotion}) queue.push(*r);
  for (Request* r : {&by_promotion, &by_priority, &by_preemption, &by_share, &by_arrival}) {
    ASSERT_EQ(queue.next(1), r);
    queue.remove(*r);
  }
}

TEST_F(WaitingQueueTest, SharesCountOnlyWhenAsked) {
  SchedulerConfig config;
  config.fair_adapters = false;
  WaitingQueue queue(config);
  OwnShare poor;
  base_.account.virtual_tokens = 10;
  Request &early = request(1), &late = request(2, 0, &poor);
  queue.push(late);
  queue.push(early);
  EXPECT_EQ(queue.next(1), &early);
}

TEST_F(WaitingQueueTest, DeferredOnesAreSkippedForThatStepOnly) {
  WaitingQueue queue({});
  Request &first = request(1), &second = request(2);
  queue.push(first);
  queue.push(second);
  first.deferred_step = 7;
  EXPECT_EQ(queue.next(7), &second);
  EXPECT_EQ(queue.next(8), &first);
}

TEST_F(WaitingQueueTest, ADeferredAdapterHidesAllItsRequestsButThoseThatHoldIt) {
  WaitingQueue queue({});
  OwnShare other;
  Request &first = request(1), &second = request(2), &holder = request(3), &third = request(4, 0, &other);
  holder.holds_adapter = true;
  for (Request* r : {&third, &holder, &second, &first}) queue.push(*r);
  EXPECT_EQ(queue.next(7), &first);
  base_.share.deferred_step = 7;  // while the step is planned
  EXPECT_EQ(queue.next(7), &holder);
  queue.remove(holder);
  EXPECT_EQ(queue.next(7), &third);
  queue.remove(third);
  EXPECT_EQ(queue.next(7), nullptr);
  EXPECT_EQ(queue.next(8), &first);
}

TEST_F(WaitingQueueTest, AccountsThatGrowWithinAStepChangeTheOrder) {
  WaitingQueue queue({});
  OwnShare shares[3];
  std::vector<Request*> all;
  for (uint64_t i = 0; i < 12; ++i) all.push_back(&request(i, 0, &shares[i % 3]));
  for (Request* r : all) queue.push(*r);
  // Each admission is charged to its account at once; the smallest account, then the first to come, is next.
  while (!queue.empty()) {
    Request* expected = nullptr;
    for (Request* r : queue.requests()) {
      if (expected == nullptr || r->share->virtual_tokens() < expected->share->virtual_tokens() ||
          (r->share->virtual_tokens() == expected->share->virtual_tokens() && r->arrival < expected->arrival)) {
        expected = r;
      }
    }
    ASSERT_EQ(queue.next(3), expected);
    queue.remove(*expected);
    FairShare::charge(expected->share, 1 + static_cast<int64_t>(expected->arrival * 7 % 5));
  }
}

TEST_F(WaitingQueueTest, AMixWaitsByTheLargestOfItsAccounts) {
  WaitingQueue queue({});
  OwnShare busy, fresh;
  busy.account.virtual_tokens = 10;
  base_.account.virtual_tokens = 5;
  Share mix{.accounts = {&fresh.account, &busy.account}};
  Request &paired = request(1), &second = request(2), &alone = request(3, 0, &fresh);
  paired.share = &mix;
  for (Request* r : {&paired, &second, &alone}) queue.push(*r);
  for (Request* r : {&alone, &second, &paired}) {
    ASSERT_EQ(queue.next(1), r);
    queue.remove(*r);
  }
}

TEST_F(WaitingQueueTest, ChangesBetweenTwoCallsAreSeen) {
  WaitingQueue queue({});
  Request &first = request(1), &second = request(2), &third = request(3);
  queue.push(third);
  queue.push(second);
  EXPECT_EQ(queue.next(1), &second);
  queue.remove(third);  // not the one that next() gave
  queue.push(first);
  EXPECT_EQ(queue.next(1), &first);
  queue.remove(first);
  EXPECT_EQ(queue.next(1), &second);
  queue.remove(second);
  EXPECT_EQ(queue.next(1), nullptr);
}

TEST_F(WaitingQueueTest, LongestWaitingIsByProgressThenArrival) {
  WaitingQueue queue({});
  EXPECT_EQ(queue.longest_waiting(), nullptr);
  Request &a = request(3), &b = request(2), &c = request(1);
  a.last_progress_step = b.last_progress_step = 4;
  c.last_progress_step = 9;
  for (Request* r : {&a, &b, &c}) queue.push(*r);
  EXPECT_EQ(queue.longest_waiting(), &b);
}

}  // namespace
}  // namespace choral::sched
