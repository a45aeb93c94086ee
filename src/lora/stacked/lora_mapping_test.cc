#include "lora/stacked/lora_mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/allocation_counter.h"

namespace choral::lora {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Adapters 17 and 5 at indices 1 and 2.
LoRAMapping mixed() {
  LoRAMapping mapping;
  mapping.add_adapter(AdapterKey(17), 1);
  mapping.add_adapter(AdapterKey(5), 2);
  mapping.add_tokens(0, 2);
  mapping.add_tokens(1, 1);
  mapping.add_tokens(2, 3);
  mapping.add_tokens(1, 1);
  mapping.add_prompts(0, 1);
  mapping.add_prompts(2, 2);
  return mapping;
}

TEST(LoRAMapping, LeadsFromIdsToIndicesAndBack) {
  LoRAMapping mapping = mixed();
  mapping.add_adapter(AdapterKey(17), 1);
  ASSERT_TRUE(mapping.validate().ok());
  EXPECT_THAT(mapping.lora_index_mapping,
              ElementsAre(LoRAMapping::Entry{AdapterKey(17), 1}, LoRAMapping::Entry{AdapterKey(5), 2}));
  EXPECT_EQ(mapping.get_index_for_lora_id(AdapterKey(5)), 2);
  EXPECT_EQ(mapping.get_index_for_lora_id(AdapterKey(6)), 0);
  EXPECT_EQ(mapping.get_lora_id_for_index(0), AdapterKey(0));
  EXPECT_EQ(mapping.get_lora_id_for_index(1), AdapterKey(17));
  EXPECT_EQ(mapping.get_lora_id_for_index(3), AdapterKey(0));
}

TEST(LoRAMapping, TheKernelsIndexOfTheBaseIsMinusOne) {
  const LoRAMapping mapping = mixed();
  std::vector<int32_t> indices;
  LoRAMapping::create_batch_indices(mapping.index_mapping, std::vector<int32_t>{-1, 4, 0}, indices);
  EXPECT_THAT(indices, ElementsAre(-1, -1, 4, 0, 0, 0, 4));
  LoRAMapping::create_batch_indices(mapping.prompt_mapping, std::vector<int32_t>{7, -1, 3}, indices);
  EXPECT_THAT(indices, ElementsAre(-1, 3, 3)) << "index 0 is the base whatever stands there";
}

TEST(LoRAMapping, ARecordThatCannotBeIsRefused) {
  const auto refusal = [](auto change) {
    LoRAMapping mapping = mixed();
    change(mapping);
    const Status status = mapping.validate();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(refusal([](auto& m) { m.add_adapter(AdapterKey(0), 3); }), HasSubstr("adapter 0 has index 3; both begin at 1"));
  EXPECT_THAT(refusal([](auto& m) { m.add_adapter(AdapterKey(3), 0); }), HasSubstr("adapter 3 has index 0; both begin at 1"));
  EXPECT_THAT(refusal([](auto& m) { m.add_adapter(AdapterKey(17), 3); }),
              HasSubstr("adapter 17 has index 1, and adapter 17 has index 3"));
  EXPECT_THAT(refusal([](auto& m) { m.add_adapter(AdapterKey(4), 2); }),
              HasSubstr("adapter 5 has index 2, and adapter 4 has index 2"));
  EXPECT_THAT(refusal([](auto& m) { m.add_tokens(3, 1); }), HasSubstr("index_mapping[7] is 3, which is no adapter's"));
  EXPECT_THAT(refusal([](auto& m) { m.prompt_mapping.push_back(-1); }), HasSubstr("prompt_mapping[3] is -1, which is no"));
}

TEST(LoRAMapping, IsReusedWithoutAllocating) {
  LoRAMapping mapping;
  mapping.reserve(8, 2);
  const std::vector<int32_t> positions{-1, 0, 1};
  std::vector<int32_t> indices;
  indices.reserve(8);
  const auto step = [&] {
    mapping.clear();
    mapping.add_adapter(AdapterKey(17), 1);
    mapping.add_adapter(AdapterKey(5), 2);
    mapping.add_tokens(1, 4);
    mapping.add_tokens(2, 4);
    mapping.add_prompts(2, 3);
    LoRAMapping::create_batch_indices(mapping.index_mapping, positions, indices);
    EXPECT_TRUE(mapping.validate().ok());
  };
  step();
  EXPECT_EQ(choral::testing::count_allocations(step).allocations, 0);
}

}  // namespace
}  // namespace choral::lora
