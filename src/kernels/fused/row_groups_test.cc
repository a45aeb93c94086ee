#include "kernels/fused/row_groups.h"

#include <gtest/gtest.h>

#include <vector>

namespace choral::kernels {
namespace {

TEST(RowGroupsTest, BothWaysOfSayingGroups) {
  const std::vector<int64_t> counts{0, 3, 0, 0, 2, 1, 0}, ends{0, 3, 3, 3, 5, 6, 6};
  for (const RowGroups& groups : {RowGroups(GroupCounts{counts}), RowGroups(GroupEnds{ends})}) {
    EXPECT_EQ(groups.size(), 7);
    EXPECT_TRUE(groups.covers(6));
    EXPECT_FALSE(groups.covers(5));
    EXPECT_FALSE(groups.covers(7));
    const int64_t expected[] = {1, 1, 1, 4, 4, 5};
    for (int64_t t = 0; t < 6; ++t) EXPECT_EQ(groups.group_of(t), expected[t]) << t;
  }
  const std::vector<int64_t> negative{3, -1, 4}, backwards{3, 2, 6};
  EXPECT_FALSE(RowGroups(GroupCounts{negative}).covers(6));
  EXPECT_FALSE(RowGroups(GroupEnds{backwards}).covers(6));
  EXPECT_TRUE(RowGroups(GroupCounts{}).covers(0));
}

}  // namespace
}  // namespace choral::kernels
