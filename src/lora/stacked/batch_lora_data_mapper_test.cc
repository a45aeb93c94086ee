#include "lora/stacked/batch_lora_data_mapper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "support/allocation_counter.h"

namespace choral::lora {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<int32_t> kPositions{7, 3, -1, 0};  // of indices 0 to 3

TEST(BatchLoRADataMapper, NeighboursOfOnePlaceAreASequence) {
  BatchLoRADataMapper mapper;
  mapper.map_sequence_to_adapters({{{2, 3, 1}, {5, 1, 3}, {6, 1, 2}}, 8}, kPositions);
  EXPECT_THAT(mapper.starts(), ElementsAre(0, 2, 5, 6));
  EXPECT_THAT(mapper.lengths(), ElementsAre(2, 3, 1, 2)) << "who has no place is as the base beside it";
  EXPECT_THAT(mapper.indices(), ElementsAre(-1, 3, 0, -1));
  EXPECT_THAT(mapper.row_indices(), ElementsAre(-1, -1, 3, 3, 3, 0, -1, -1));
  EXPECT_EQ(mapper.max_length(), 3);
  EXPECT_FALSE(mapper.no_lora());
}

TEST(BatchLoRADataMapper, NothingAndOnlyTheBaseHaveNoAdapter) {
  BatchLoRADataMapper mapper;
  mapper.map_sequence_to_adapters({{{0, 1, 1}}, 1}, kPositions);
  EXPECT_FALSE(mapper.no_lora());
  mapper.map_sequence_to_adapters({}, kPositions);
  EXPECT_THAT(mapper.starts(), IsEmpty());
  EXPECT_EQ(mapper.max_length(), 0);
  EXPECT_TRUE(mapper.no_lora());
  mapper.map_sequence_to_adapters({{{0, 1, 0}}, 2}, kPositions);
  EXPECT_THAT(mapper.lengths(), ElementsAre(2)) << "index 0 is the base whatever place stands there";
  EXPECT_TRUE(mapper.no_lora());
}

RC_GTEST_PROP(BatchLoRADataMapper, RowsAreWhatTheRunsSay, ()) {
  LoRARows rows;
  std::vector<int32_t> expected;
  for (const auto& [gap, length] :
       *rc::gen::container<std::vector<std::pair<int, int>>>(rc::gen::pair(rc::gen::inRange(0, 3), rc::gen::inRange(1, 4)))) {
    const int32_t index = *rc::gen::inRange(0, 4);
    expected.insert(expected.end(), gap, -1);
    rows.runs.push_back({std::ssize(expected), length, index});
    expected.insert(expected.end(), length, index == 0 ? -1 : kPositions[index]);
  }
  expected.insert(expected.end(), *rc::gen::inRange(0, 3), -1);
  rows.count = std::ssize(expected);
  BatchLoRADataMapper mapper;
  mapper.map_sequence_to_adapters(rows, kPositions);
  const auto given = mapper.row_indices();
  RC_ASSERT(std::vector<int32_t>(given.begin(), given.end()) == expected);
  int32_t row = 0;
  for (size_t i = 0; i < mapper.starts().size(); ++i) {
    RC_ASSERT(mapper.starts()[i] == row);
    RC_ASSERT((i == 0 || mapper.indices()[i] != mapper.indices()[i - 1]));  // the macro alone would read both sides
    RC_ASSERT(mapper.lengths()[i] > 0 && mapper.lengths()[i] <= mapper.max_length());
    RC_ASSERT(mapper.indices()[i] == expected[row]);
    row += mapper.lengths()[i];
  }
  RC_ASSERT(row == rows.count);
}

TEST(BatchLoRADataMapper, AllocatesNothingOnceReserved) {
  BatchLoRADataMapper mapper;
  mapper.reserve(6);
  const LoRARows rows{{{0, 1, 1}, {2, 1, 3}, {4, 1, 1}}, 6};
  EXPECT_EQ(choral::testing::count_allocations([&] { mapper.map_sequence_to_adapters(rows, kPositions); }).allocations, 0);
}

}  // namespace
}  // namespace choral::lora
