#include "engine/speculation/step_costs.h"

#include <gtest/gtest.h>

namespace choral::engine {
namespace {

void add(StepCosts& costs, int32_t rows, double seconds, int times) {
  for (int i = 0; i < times; ++i) costs.add(rows, seconds);
}

TEST(StepCosts, BetweenWhatWasSeenItIsALine) {
  StepCosts costs;
  EXPECT_TRUE(costs.empty());
  add(costs, 1, 1, 20);
  add(costs, 4, 2.5, 20);
  EXPECT_DOUBLE_EQ(costs.seconds(1), 1);
  EXPECT_DOUBLE_EQ(costs.seconds(2), 1.5);
  EXPECT_DOUBLE_EQ(costs.seconds(4), 2.5);
  EXPECT_GT(costs.seconds(8), 2.5);
}

TEST(StepCosts, AStepThatWaitedCountsLittle) {
  StepCosts costs;
  add(costs, 2, 1, 20);
  costs.add(2, 100);
  EXPECT_LT(costs.seconds(2), 1.1);
}

TEST(StepCosts, AStepThatTookLittleIsBelieved) {
  StepCosts costs;
  add(costs, 2, 100, 3);
  costs.add(2, 1);
  EXPECT_LE(costs.seconds(2), 2);
}

TEST(StepCosts, WhatIsOldCountsLess) {
  StepCosts fresh, old;
  for (StepCosts* costs : {&fresh, &old}) add(*costs, 1, 2, 20);
  add(old, 8, 3, 200);
  fresh.add(1, 1);
  old.add(1, 1);
  EXPECT_GT(fresh.seconds(1), 1.9);
  EXPECT_LT(old.seconds(1), 1.6);
}

TEST(StepCosts, SeldomSeenItIsSoonStale) {
  StepCosts costs;
  const auto fresh_for = [&] {
    int steps = 0;
    for (; !costs.is_stale(1); ++steps) costs.add(8, 1);
    return steps;
  };
  EXPECT_TRUE(costs.is_stale(1)) << "it was never seen";
  costs.add(1, 1);
  EXPECT_EQ(fresh_for(), 8);
  costs.add(1, 1);
  EXPECT_EQ(fresh_for(), 16);
  add(costs, 1, 1, 50);
  EXPECT_EQ(fresh_for(), 64);
}

}  // namespace
}  // namespace choral::engine
