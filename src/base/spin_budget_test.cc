#include "base/spin_budget.h"

#include <gtest/gtest.h>

namespace choral {
namespace {

TEST(SpinBudget, IsHalvedByLongWaitsAndWholeAgainAfterAShortOne) {
  SpinBudget budget;
  EXPECT_EQ(budget.ns(), SpinBudget::kMostNs);
  budget.learn(SpinBudget::kMostNs);
  EXPECT_EQ(budget.ns(), SpinBudget::kMostNs);
  budget.learn(SpinBudget::kMostNs + 1);
  EXPECT_EQ(budget.ns(), SpinBudget::kMostNs / 2);
  for (int i = 0; i < 100; ++i) budget.learn(int64_t{1} << 40);
  EXPECT_EQ(budget.ns(), SpinBudget::kPausesNs) << "the gap between two operations is always waited for awake";
  budget.learn(0);
  EXPECT_EQ(budget.ns(), SpinBudget::kMostNs);
}

TEST(SpinBudget, SleepsWhenItIsUsedUpAndAgainWhenWokenForNothing) {
  SpinBudget budget;
  int sleeps = 0;
  budget.wait([&] { return sleeps == 3; }, [&] { ++sleeps; });
  EXPECT_EQ(sleeps, 3);
}

TEST(SpinBudget, DoesNotSleepForWhatIsThere) {
  SpinBudget budget;
  int looks = 0;
  budget.wait([&] { return ++looks == 20; }, [] { FAIL() << "after 20 looks"; });
  EXPECT_EQ(looks, 20);
}

}  // namespace
}  // namespace choral
