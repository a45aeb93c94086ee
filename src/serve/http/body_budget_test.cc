#include "serve/http/body_budget.h"

#include <gtest/gtest.h>

namespace choral::serve {
namespace {

TEST(BodyBudget, NobodyHoldsMoreThanIsLeft) {
  BodyBudget budget;
  EXPECT_TRUE(budget.take("a", 500, 1000));
  EXPECT_FALSE(budget.take("a", 1, 1000)) << "half is one's share";
  EXPECT_TRUE(budget.take("b", 250, 1000));
  EXPECT_FALSE(budget.take("b", 1, 1000));
  EXPECT_TRUE(budget.take("c", 125, 1000)) << "whoever comes next finds room";
  budget.give_back("a", 500);
  EXPECT_TRUE(budget.take("b", 100, 1000)) << "what is given back is there for others";
  EXPECT_EQ(budget.held(), 475);
  budget.give_back("b", 350);
  budget.give_back("c", 125);
  EXPECT_EQ(budget.held(), 0);
}

TEST(BodyBudget, ARefusalChangesNothing) {
  BodyBudget budget;
  EXPECT_FALSE(budget.take("a", 501, 1000));
  EXPECT_EQ(budget.held(), 0);
  EXPECT_TRUE(budget.take("a", 500, 1000));
}

}  // namespace
}  // namespace choral::serve
