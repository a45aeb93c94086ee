#include "kernels/quant/quant_panels.h"

#include <gtest/gtest.h>

#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/ref/quant.h"

namespace choral::kernels {
namespace {

class QuantPanelsTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, QuantPanelsTest, testing::ValuesIn(kQuantTypes),
                         [](const auto& tested) { return std::string(dtype_name(tested.param)); });

TEST_P(QuantPanelsTest, EveryIntegerAndScaleComesBack) {
  const DType type = GetParam();
  const QuantForm form = quant_form(type);
  for (const int64_t blocks : {8, 16, 24}) {
    for (const int64_t n : {1, 15, 16}) {
      const auto data = random_quant_matrix(type, n, blocks * 32, 11);
      std::vector<const std::byte*> rows;
      for (int64_t r = 0; r < n; ++r) rows.push_back(data.view().row(r));
      std::vector<std::byte> panel(form.panel_bytes(blocks));
      pack_quant_panel(type, rows, blocks, panel.data());
      for (int lane = 0; lane < n; ++lane) {
        for (int64_t i = 0; i < blocks * 32; ++i) {
          const QuantLaneBlock got = read_quant_lane(form, panel.data(), i / 32, lane);
          const auto expected = ref::quant_element(type, rows[lane], i);
          ASSERT_EQ(got.n[i % 32] - form.zero(), expected.integer) << lane << ", " << i;
          ASSERT_EQ(got.scale[i % 32 / (32 / form.sub_blocks())], expected.scale) << lane << ", " << i;
          ASSERT_EQ(got.min[form.has_min() ? i % 32 / (32 / form.sub_blocks()) : 0], expected.min) << lane << ", " << i;
        }
      }
      for (int lane = static_cast<int>(n); lane < kQuantLanes; ++lane) {
        EXPECT_EQ(read_quant_lane(form, panel.data(), blocks - 1, lane).scale[0], 0.0f);
      }
    }
  }
}

// An odd number of blocks ends a group early; nothing beyond the row is read (rows end where their vectors end: for ASan).
TEST_P(QuantPanelsTest, OddBlocks) {
  const DType type = GetParam();
  if (facts(type).block_elements == 256) return;
  const QuantForm form = quant_form(type);
  for (const int64_t blocks : {1, 3, 5}) {
    const auto data = random_quant_matrix(type, 1, blocks * 32, 12);
    const std::byte* row = data.bytes.data();
    std::vector<std::byte> panel(form.panel_bytes(blocks));
    pack_quant_panel(type, {&row, 1}, blocks, panel.data());
    const QuantLaneBlock got = read_quant_lane(form, panel.data(), blocks - 1, 0);
    for (int i = 0; i < 32; ++i) {
      const auto expected = ref::quant_element(type, row, (blocks - 1) * 32 + i);
      ASSERT_EQ(got.n[i] - form.zero(), expected.integer);
      ASSERT_EQ(got.scale[0], expected.scale);
    }
  }
}

// The kernels load 64-byte steps and 32-byte scale rows: neither may straddle a cache line.
TEST_P(QuantPanelsTest, GroupsAndBlocksStandOnCacheLines) {
  const QuantForm form = quant_form(GetParam());
  EXPECT_EQ(form.header_bytes() % 64, 0);
  EXPECT_EQ(form.block_bytes() % 64, 0);
  EXPECT_EQ(form.block_offset(17),
            17 / form.group_blocks() * form.group_bytes() + form.header_bytes() + 17 % form.group_blocks() * form.block_bytes());
}

TEST(QuantPanels, BytesPerWeight) {
  const auto bits = [](DType type) { return static_cast<double>(quant_form(type).panel_bytes(128)) * 8 / (128 * 32 * 16); };
  EXPECT_EQ(bits(DType::kQ8_0), 8.5);
  EXPECT_EQ(bits(DType::kQ4_0), 4.5);
  EXPECT_EQ(bits(DType::kQ4_1), 5.0);
  EXPECT_EQ(bits(DType::kQ5_0), 5.5);
  EXPECT_EQ(bits(DType::kQ5_1), 6.0);
  EXPECT_EQ(bits(DType::kQ4_K), 4.625);
  EXPECT_EQ(bits(DType::kQ5_K), 5.625);
  EXPECT_EQ(bits(DType::kQ6_K), 6.625);
  EXPECT_EQ(bits(DType::kQ2_K), 2.625);
  EXPECT_EQ(bits(DType::kQ3_K), 3.625);
  EXPECT_EQ(bits(DType::kIQ4_NL), 4.5);
  EXPECT_EQ(bits(DType::kIQ4_XS), 4.375);
  EXPECT_EQ(bits(DType::kTQ1_0), 2.125);
  EXPECT_EQ(bits(DType::kTQ2_0), 2.125);
  EXPECT_EQ(bits(DType::kMXFP4), 5.0);
  EXPECT_EQ(bits(DType::kIQ1_S), 3.375);
  EXPECT_EQ(bits(DType::kIQ1_M), 3.625);
  EXPECT_EQ(bits(DType::kIQ2_XXS), 3.375);
  EXPECT_EQ(bits(DType::kIQ2_XS), 3.625);
  EXPECT_EQ(bits(DType::kIQ2_S), 3.625);
  EXPECT_EQ(bits(DType::kIQ3_XXS), 4.375);
  EXPECT_EQ(bits(DType::kIQ3_S), 4.375);
}

TEST(QuantPanels, PlainTypesHaveNoForm) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) EXPECT_FALSE(has_quant_form(type));
  for (const DType type : kQuantTypes) EXPECT_TRUE(has_quant_form(type));
}

}  // namespace
}  // namespace choral::kernels
