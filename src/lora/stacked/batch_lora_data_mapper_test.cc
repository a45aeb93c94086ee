#include "lora/stacked/batch_lora_data_mapper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/allocation_counter.h"

namespace choral::lora {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Status map(BatchLoRADataMapper& mapper, std::vector<int32_t> ids, std::vector<int64_t> lengths) {
  return mapper.map_sequence_to_adapters(ids, lengths);
}

TEST(BatchLoRADataMapper, MergesNeighboursOfOneAdapter) {
  BatchLoRADataMapper mapper;
  ASSERT_TRUE(map(mapper, {0, 3, 3, 0, 3, 7}, {2, 1, 4, 3, 1, 2}).ok());
  EXPECT_THAT(mapper.token_ids(), ElementsAre(0, 0, 3, 3, 3, 3, 3, 0, 0, 0, 3, 7, 7));
  EXPECT_THAT(mapper.segments(),
              ElementsAre(LoRASegment{0, 2, AdapterKey{0}}, LoRASegment{2, 5, AdapterKey{3}}, LoRASegment{7, 3, AdapterKey{0}},
                          LoRASegment{10, 1, AdapterKey{3}}, LoRASegment{11, 2, AdapterKey{7}}));
  EXPECT_EQ(mapper.token_count(), 13);
  EXPECT_EQ(mapper.max_length(), 5);
  EXPECT_FALSE(mapper.no_lora());
}

TEST(BatchLoRADataMapper, ABatchWithoutAdapterSaysSo) {
  BatchLoRADataMapper mapper;
  ASSERT_TRUE(map(mapper, {0, 0, 0}, {2, 1, 4}).ok());
  EXPECT_THAT(mapper.segments(), ElementsAre(LoRASegment{0, 7, AdapterKey{0}}));
  EXPECT_TRUE(mapper.no_lora());
  ASSERT_TRUE(map(mapper, {5}, {1}).ok());
  EXPECT_FALSE(mapper.no_lora());
  ASSERT_TRUE(map(mapper, {}, {}).ok());
  EXPECT_TRUE(mapper.no_lora());
  EXPECT_THAT(mapper.segments(), IsEmpty());
  EXPECT_EQ(mapper.max_length(), 0);
}

TEST(BatchLoRADataMapper, EmptySequencesAreNowhere) {
  BatchLoRADataMapper mapper;
  ASSERT_TRUE(map(mapper, {4, 9, 4, 9}, {2, 0, 1, 0}).ok());
  EXPECT_THAT(mapper.segments(), ElementsAre(LoRASegment{0, 3, AdapterKey{4}}));
  ASSERT_TRUE(map(mapper, {4}, {0}).ok());
  EXPECT_TRUE(mapper.no_lora());
}

TEST(BatchLoRADataMapper, RefusesAndKeepsTheLastMapping) {
  BatchLoRADataMapper mapper;
  ASSERT_TRUE(map(mapper, {4}, {2}).ok());
  EXPECT_EQ(map(mapper, {1, 2}, {1}).code(), Code::kInvalidArgument);
  EXPECT_EQ(map(mapper, {1, -1}, {1, 1}).code(), Code::kInvalidArgument);
  EXPECT_EQ(map(mapper, {1, 1}, {1, -1}).code(), Code::kInvalidArgument);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(map(mapper, {1, 1}, {kMost, kMost}).code(), Code::kInvalidArgument);
  EXPECT_EQ(map(mapper, {1, 1}, {BatchLoRADataMapper::kMostTokens, 1}).code(), Code::kInvalidArgument);
  EXPECT_THAT(mapper.token_ids(), ElementsAre(4, 4));
}

TEST(BatchLoRADataMapper, AllocatesNothingOnceReserved) {
  BatchLoRADataMapper mapper;
  mapper.reserve(64, 8);
  const std::vector<int32_t> ids = {1, 0, 2, 0, 3, 0, 4, 5};
  const std::vector<int64_t> lengths(8, 8);
  const auto count = choral::testing::count_allocations([&] {
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(mapper.map_sequence_to_adapters(ids, lengths).ok());
  });
  EXPECT_EQ(count.allocations, 0);
}

}  // namespace
}  // namespace choral::lora
