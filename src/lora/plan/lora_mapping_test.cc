#include "lora/plan/lora_mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/allocation_counter.h"

namespace choral::lora {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Slots 0 … 3: the base, adapters 17 and 5, a free one.
LoRAMapping mixed() {
  LoRAMapping mapping;
  mapping.lora_index_mapping = {0, 17, 5, 0};
  mapping.add_tokens(0, 2);
  mapping.add_tokens(1, 1);
  mapping.add_tokens(2, 3);
  mapping.add_tokens(1, 1);
  for (const int32_t slot : {0, 2}) mapping.add_prompt(slot);
  return mapping;
}

TEST(LoRAMapping, SaysWhichAdaptersTheRowsHave) {
  LoRAMapping mapping = mixed();
  ASSERT_TRUE(mapping.validate().ok());
  mapping.collect_ids();
  EXPECT_THAT(mapping.lora_ids(), ElementsAre(5, 17));
  EXPECT_THAT(mapping.prompt_lora_ids(), ElementsAre(5));
  EXPECT_EQ(mapping.max_id(), 17);
  EXPECT_EQ(mapping.get_lora_id_for_index(0), 0);
  EXPECT_EQ(mapping.get_lora_id_for_index(1), 17);
  EXPECT_EQ(mapping.get_lora_id_for_index(3), 0);
  EXPECT_EQ(mapping.lora_id_of_token(1), 0);
  EXPECT_EQ(mapping.lora_id_of_token(5), 5);
  EXPECT_EQ(mapping.lora_id_of_token(6), 17);
}

TEST(LoRAMapping, TheKernelsIndexOfTheBaseIsMinusOne) {
  EXPECT_THAT(mixed().create_batch_indices(), ElementsAre(-1, -1, 0, 1, 1, 1, 0));
}

TEST(LoRAMapping, BaseRowsAloneHaveNoId) {
  LoRAMapping mapping;
  mapping.add_tokens(0, 5);
  mapping.collect_ids();
  EXPECT_THAT(mapping.lora_ids(), IsEmpty());
  EXPECT_EQ(mapping.max_id(), 0);
  EXPECT_THAT(mapping.create_batch_indices(), ElementsAre(-1, -1, -1, -1, -1));
}

TEST(LoRAMapping, RefusesWhatDoesNotFitTogether) {
  const auto message = [](auto&& spoil) {
    LoRAMapping mapping = mixed();
    spoil(mapping);
    const Status status = mapping.validate();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(message([](auto& m) { m.lora_index_mapping.clear(); }), HasSubstr("slot 0 is the base"));
  EXPECT_THAT(message([](auto& m) { m.lora_index_mapping[0] = 4; }), HasSubstr("not 4"));
  EXPECT_THAT(message([](auto& m) { m.lora_index_mapping[3] = -4; }), HasSubstr("slot 3 has adapter id -4"));
  EXPECT_THAT(message([](auto& m) { m.lora_index_mapping[3] = 17; }), HasSubstr("adapter 17 has slots 1 and 3"));
  EXPECT_THAT(message([](auto& m) { m.index_mapping[2] = 4; }), HasSubstr("index_mapping[2] is slot 4"));
  EXPECT_THAT(message([](auto& m) { m.index_mapping[2] = -1; }), HasSubstr("slots 0 to 3"));
  EXPECT_THAT(message([](auto& m) { m.index_mapping[2] = 3; }), HasSubstr("no adapter"));
  EXPECT_THAT(message([](auto& m) { m.prompt_mapping[1] = -1; }), HasSubstr("prompt_mapping[1]"));
  EXPECT_THAT(message([](auto& m) { m.prompt_mapping.assign(8, 0); }), HasSubstr("8 rows"));
  EXPECT_THAT(message([](auto& m) { m.index_mapping.assign(7, 1); }), HasSubstr("which no token has"));
}

TEST(LoRAMapping, IsReusedWithoutAllocating) {
  LoRAMapping mapping;
  mapping.reserve(32, 8, 9);
  std::vector<int32_t> indices;
  indices.reserve(32);
  const auto count = choral::testing::count_allocations([&] {
    for (int i = 0; i < 10; ++i) {
      mapping.clear();
      for (int32_t slot = 0; slot < 9; ++slot) mapping.lora_index_mapping.push_back(slot * (7 - i % 3));
      for (int32_t slot = 1; slot < 9; ++slot) {
        mapping.add_tokens(slot, 4);
        mapping.add_prompt(slot);
      }
      mapping.collect_ids();
      mapping.create_batch_indices(indices);
    }
  });
  EXPECT_EQ(count.allocations, 0);
  EXPECT_EQ(mapping.lora_ids().size(), 8u);
  mapping.clear();
  EXPECT_THAT(mapping.index_mapping, IsEmpty());
  EXPECT_THAT(mapping.lora_ids(), IsEmpty());
  EXPECT_EQ(mapping.max_id(), 0);
}

}  // namespace
}  // namespace choral::lora
