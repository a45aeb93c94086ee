#include "kernels/quant/quantise_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/quant/dequantise.h"

namespace choral::kernels {
namespace {

class WrittenBlocks : public testing::TestWithParam<DType> {};

// tests/data/kernels/write_quantised.py: two uint32 counts, floats, and the blocks that the `gguf` package (0.19) makes of them.
TEST_P(WrittenBlocks, AreTheGgufPackagesByteForByte) {
  std::ifstream file(std::string(CHORAL_TEST_DATA) + "/kernels/" + std::string(dtype_name(GetParam())) + ".quantised",
                     std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  uint32_t counts[2] = {};
  ASSERT_GT(all.size(), sizeof counts);
  std::memcpy(counts, all.data(), sizeof counts);
  ASSERT_EQ(all.size(), sizeof counts + counts[0] * sizeof(float) + counts[1]);
  std::vector<float> floats(counts[0]);
  std::memcpy(floats.data(), all.data() + sizeof counts, counts[0] * sizeof(float));
  const std::string wanted = all.substr(sizeof counts + counts[0] * sizeof(float));
  ASSERT_EQ(row_bytes(GetParam(), counts[0]), std::ssize(wanted));
  std::vector<std::byte> blocks(wanted.size());
  quantise_row(GetParam(), floats.data(), counts[0], blocks.data());
  const int64_t block_bytes = row_bytes(GetParam(), 32);
  for (int64_t i = 0; i < std::ssize(blocks); ++i) {
    ASSERT_EQ(std::to_integer<int>(blocks[i]), static_cast<uint8_t>(wanted[i])) << "block " << i / block_bytes;
  }
}

// What is read back is off by half a step at most, or by what float16 makes of the step.
TEST_P(WrittenBlocks, LoseHalfAStep) {
  std::vector<float> x(64), back(64);
  for (int i = 0; i < 64; ++i) x[i] = std::sin(static_cast<float>(i * i)) * (i < 32 ? 1.0f : 40.0f);
  std::vector<std::byte> blocks(row_bytes(GetParam(), 64));
  quantise_row(GetParam(), x.data(), 64, blocks.data());
  dequantise_row(GetParam(), blocks.data(), 64, back.data());
  const float steps = GetParam() == DType::kQ8_0 ? 127.0f : GetParam() == DType::kQ4_0 ? 8.0f : 7.5f;
  for (int i = 0; i < 64; ++i) {
    const float largest = i < 32 ? 1.0f : 40.0f;
    // Q4_0 has one step fewer on the side that its largest number is not on.
    const float bound = largest / steps * (GetParam() == DType::kQ4_0 ? 1.0f : 0.5f) + largest * 0x1p-10f;
    EXPECT_NEAR(back[i], x[i], bound) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, WrittenBlocks, testing::Values(DType::kQ8_0, DType::kQ4_0, DType::kQ4_1),
                         [](const auto& test) { return std::string(dtype_name(test.param)); });

}  // namespace
}  // namespace choral::kernels
