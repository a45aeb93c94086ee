#include "lora/stacked/batch_lora_data_mapper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "support/allocation_counter.h"

namespace choral::lora {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(BatchLoRADataMapper, RunsOfEqualIndicesAreSequences) {
  BatchLoRADataMapper mapper;
  mapper.map_rows(std::vector<int32_t>{-1, -1, 3, 3, 3, 0, -1});
  EXPECT_THAT(mapper.starts(), ElementsAre(0, 2, 5, 6));
  EXPECT_THAT(mapper.lengths(), ElementsAre(2, 3, 1, 1));
  EXPECT_THAT(mapper.indices(), ElementsAre(-1, 3, 0, -1));
  EXPECT_EQ(mapper.row_count(), 7);
  EXPECT_EQ(mapper.max_length(), 3);
  EXPECT_FALSE(mapper.no_lora());
}

TEST(BatchLoRADataMapper, NothingAndOnlyTheBaseHaveNoAdapter) {
  BatchLoRADataMapper mapper;
  mapper.map_rows(std::vector<int32_t>{2});
  mapper.map_rows({});
  EXPECT_THAT(mapper.starts(), IsEmpty());
  EXPECT_TRUE(mapper.no_lora());
  mapper.map_rows(std::vector<int32_t>{-1, -1});
  EXPECT_THAT(mapper.lengths(), ElementsAre(2));
  EXPECT_TRUE(mapper.no_lora());
}

RC_GTEST_PROP(BatchLoRADataMapper, SequencesRepeatedGiveTheRows, ()) {
  const auto rows = *rc::gen::container<std::vector<int32_t>>(rc::gen::inRange(-1, 3));
  BatchLoRADataMapper mapper;
  mapper.map_rows(rows);
  std::vector<int32_t> repeated;
  for (size_t i = 0; i < mapper.count(); ++i) {
    RC_ASSERT(mapper.starts()[i] == static_cast<int32_t>(repeated.size()));
    RC_ASSERT((i == 0 || mapper.indices()[i] != mapper.indices()[i - 1]));  // the macro alone would read both sides
    RC_ASSERT(mapper.lengths()[i] > 0 && mapper.lengths()[i] <= mapper.max_length());
    repeated.insert(repeated.end(), mapper.lengths()[i], mapper.indices()[i]);
  }
  RC_ASSERT(repeated == rows);
}

TEST(BatchLoRADataMapper, AllocatesNothingOnceReserved) {
  BatchLoRADataMapper mapper;
  mapper.reserve(6);
  const std::vector<int32_t> rows{0, 1, 0, 1, 0, 1};
  EXPECT_EQ(choral::testing::count_allocations([&] { mapper.map_rows(rows); }).allocations, 0);
}

}  // namespace
}  // namespace choral::lora
