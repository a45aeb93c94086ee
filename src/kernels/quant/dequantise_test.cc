#include "kernels/quant/dequantise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "base/float16.h"

namespace choral::kernels {
namespace {

// Written by tests/data/kernels/write_dequantised.py with the `gguf` package (0.19): two uint32 counts, the blocks, then the
// floats its dequantize() gives.
struct Golden {
  std::vector<std::byte> blocks;
  std::vector<float> values;
};

Golden read_golden(DType type) {
  std::ifstream file(std::string(CHORAL_TEST_DATA) + "/kernels/" + std::string(dtype_name(type)) + ".dequantised",
                     std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  uint32_t counts[2] = {};
  if (all.size() >= 8) std::memcpy(counts, all.data(), 8);
  Golden golden{std::vector<std::byte>(counts[0]), std::vector<float>(counts[1])};
  EXPECT_EQ(all.size(), 8 + counts[0] + 4 * size_t{counts[1]}) << dtype_name(type);
  if (all.size() != 8 + counts[0] + 4 * size_t{counts[1]}) return {};
  std::memcpy(golden.blocks.data(), all.data() + 8, counts[0]);
  std::memcpy(golden.values.data(), all.data() + 8 + counts[0], 4 * size_t{counts[1]});
  return golden;
}

class BlockType : public testing::TestWithParam<DType> {};

TEST_P(BlockType, EqualsTheGgufPackageBitForBit) {
  const Golden golden = read_golden(GetParam());
  ASSERT_FALSE(golden.values.empty());
  const auto elements = std::ssize(golden.values);
  ASSERT_EQ(row_bytes(GetParam(), elements), std::ssize(golden.blocks));
  std::vector<std::byte> shifted(golden.blocks.size() + 1);  // an odd address
  std::memcpy(shifted.data() + 1, golden.blocks.data(), golden.blocks.size());
  std::vector<float> values(golden.values.size());
  dequantise_row(GetParam(), shifted.data() + 1, elements, values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(golden.values[i])) << "element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, BlockType,
                         testing::Values(DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ4_K,
                                         DType::kQ5_K, DType::kQ6_K, DType::kQ2_K, DType::kQ3_K, DType::kIQ4_NL, DType::kIQ4_XS,
                                         DType::kTQ1_0, DType::kTQ2_0, DType::kMXFP4, DType::kIQ1_S, DType::kIQ1_M,
                                         DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S),
                         [](const auto& test) { return std::string(dtype_name(test.param)); });

template <class T>
std::vector<float> dequantised(DType type, const std::vector<T>& row) {
  std::vector<std::byte> bytes(row.size() * sizeof(T) + 1);
  std::memcpy(bytes.data() + 1, row.data(), row.size() * sizeof(T));
  std::vector<float> out(row.size());
  dequantise_row(type, bytes.data() + 1, std::ssize(row), out.data());
  return out;
}

TEST(DequantiseRow, PlainTypesAreExact) {
  EXPECT_EQ(dequantised<float>(DType::kF32, {1.5f, -0.0f, 3e38f}), (std::vector<float>{1.5f, -0.0f, 3e38f}));
  EXPECT_EQ(dequantised<uint16_t>(DType::kF16, {0x3E00, 0xC000, 0x0001}), (std::vector<float>{1.5f, -2.0f, 0x1p-24f}));
  EXPECT_EQ(dequantised<uint16_t>(DType::kBF16, {0x3FC0, 0xC000, 0x0001}), (std::vector<float>{1.5f, -2.0f, 0x1p-133f}));
}

TEST(DequantiseRow, DoubleRoundsToNearestEven) {
  EXPECT_EQ(dequantised<double>(DType::kF64, {1.0 + 0x1p-24, 1.0 + 0x3p-24, 0.1, 1e300}),
            (std::vector<float>{1.0f, 1.0f + 0x1p-22f, 0.1f, std::numeric_limits<float>::infinity()}));
}

TEST(DequantiseRow, NonFiniteHalvesStayNonFinite) {
  const auto out = dequantised<uint16_t>(DType::kF16, {0x7C00, 0xFC00, 0x7E01});
  EXPECT_TRUE(std::isinf(out[0]) && out[0] > 0);
  EXPECT_TRUE(std::isinf(out[1]) && out[1] < 0);
  EXPECT_TRUE(std::isnan(out[2]));
}

TEST(DequantiseRow, KnowsItsTypes) {
  EXPECT_TRUE(can_dequantise(DType::kQ6_K));
  EXPECT_TRUE(can_dequantise(DType::kF64));
  EXPECT_FALSE(can_dequantise(DType::kI8));
  EXPECT_FALSE(can_dequantise(DType::kF8E4M3));
}

}  // namespace
}  // namespace choral::kernels
