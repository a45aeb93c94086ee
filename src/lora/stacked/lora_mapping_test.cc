#include "lora/stacked/lora_mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/allocation_counter.h"

namespace choral::lora {
namespace {

using ::testing::ElementsAre;

TEST(LoRAMapping, LeadsFromIdsToIndicesAndBack) {
  LoRAMapping mapping;
  EXPECT_EQ(mapping.add_adapter(AdapterKey(17)), 1);
  EXPECT_EQ(mapping.add_adapter(AdapterKey(5)), 2);
  EXPECT_EQ(mapping.get_index_for_lora_id(AdapterKey(5)), 2);
  EXPECT_EQ(mapping.get_index_for_lora_id(AdapterKey(6)), 0);
  EXPECT_EQ(mapping.get_index_for_lora_id(kBaseKey), 0);
  EXPECT_THAT(mapping.lora_index_to_id, ElementsAre(kBaseKey, AdapterKey(17), AdapterKey(5)));
  mapping.clear();
  EXPECT_EQ(mapping.get_index_for_lora_id(AdapterKey(5)), 0);
}

TEST(LoRAMapping, IsReusedWithoutAllocating) {
  LoRAMapping mapping;
  mapping.reserve(8, 2);
  const auto step = [&] {
    mapping.clear();
    mapping.index_mapping.runs.push_back({0, 4, mapping.add_adapter(AdapterKey(17))});
    mapping.index_mapping.runs.push_back({4, 4, mapping.add_adapter(AdapterKey(5))});
    mapping.prompt_mapping.runs.push_back({0, 3, 2});
  };
  EXPECT_EQ(choral::testing::count_allocations(step).allocations, 0);
}

}  // namespace
}  // namespace choral::lora
