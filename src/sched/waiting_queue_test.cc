#include "sched/waiting_queue.h"

#include <gtest/gtest.h>

#include "sched/fair_share.h"

namespace choral::sched {
namespace {

class WaitingQueueTest : public testing::Test {
 protected:
  Request& request(uint64_t arrival, int32_t priority = 0, ShareAccount* share = nullptr) {
    auto& r = *owned_.emplace_back(std::make_unique<Request>());
    r.arrival = arrival;
    r.priority = priority;
    r.share = share == nullptr ? &base_ : share;
    return r;
  }
  ShareAccount base_;
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
  ShareAccount poor;
  base_.virtual_tokens = 10;
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
  ShareAccount poor;
  base_.virtual_tokens = 10;
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
