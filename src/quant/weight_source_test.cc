#include "quant/weight_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/quant/dequantise.h"
#include "quant/weights_test.h"

namespace choral::quant {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::StoredWeights;

constexpr float kNeitherHas = 1.0f + 1.0f / 4096;  // a float32 that neither float16 nor bfloat16 has
constexpr float kHalf = 1.0f + 1.0f / 1024;        // float16 has it, bfloat16 does not

TEST(ReadVector, KeepsWhatIsStored) {
  StoredWeights source;
  source.add("f32", DType::kF32, {2}, {kNeitherHas, -2});
  source.add("f16", DType::kF16, {2}, {kHalf, -2});
  std::vector<float> out(2);
  ASSERT_TRUE(source.read_vector("f32", out).ok());
  EXPECT_THAT(out, ElementsAre(kNeitherHas, -2));
  ASSERT_TRUE(source.read_vector("f16", out).ok());
  EXPECT_THAT(out, ElementsAre(kHalf, -2));
  EXPECT_THAT(source.released(), ElementsAre("f32", "f16"));
}

TEST(ReadVector, RoundsAsTheRequestSays) {
  const auto read = [](DType convert_to) {
    StoredWeights source({.as_stored = false, .convert_to = convert_to});
    source.add("norm", DType::kF32, {2}, {kNeitherHas, kHalf});
    std::vector<float> out(2);
    EXPECT_TRUE(source.read_vector("norm", out).ok());
    return out;
  };
  EXPECT_THAT(read(DType::kF32), ElementsAre(kNeitherHas, kHalf));
  EXPECT_THAT(read(DType::kF16), ElementsAre(1, kHalf));
  EXPECT_THAT(read(DType::kBF16), ElementsAre(1, 1));
}

TEST(ReadVector, AddsToWhatTheHuggingFaceTensorHas) {
  StoredWeights source;
  source.add("hf", DType::kF32, {2}, {0.25f, -0.75f});
  source.add("gguf", DType::kF32, {2}, {1.25f, 0x1.000002p-4f}, {}, /*added=*/1);
  std::vector<float> out(2);
  ASSERT_TRUE(source.read_vector("hf", out, 1).ok());
  EXPECT_THAT(out, ElementsAre(1.25f, 0.25f));
  ASSERT_TRUE(source.read_vector("gguf", out, 1).ok());
  EXPECT_THAT(out, ElementsAre(1.25f, 0x1.000002p-4f)) << "a sum that is stored is not taken apart and rounded";
  ASSERT_TRUE(source.read_vector("gguf", out).ok());
  EXPECT_EQ(out[0], 0.25f);
  StoredWeights rounding({.as_stored = false, .convert_to = DType::kBF16});
  rounding.add("gguf", DType::kF32, {1}, {1 + 0x1.02p-6f}, {}, /*added=*/1);
  std::vector<float> one(1);
  ASSERT_TRUE(rounding.read_vector("gguf", one, 1).ok());
  EXPECT_EQ(one[0], 1 + 0x1.02p-6f) << "the weight is rounded, not its sum with 1";
}

TEST(ReadVector, FollowsTheRowOrder) {
  StoredWeights source;
  source.add("q.bias", DType::kF32, {4}, {10, 11, 12, 13}, {0, 2, 1, 3});
  std::vector<float> out(4);
  ASSERT_TRUE(source.read_vector("q.bias", out).ok());
  EXPECT_THAT(out, ElementsAre(10, 12, 11, 13));
}

TEST(ReadVector, ReadsBlocks) {
  const auto stored = kernels::random_quant_matrix(DType::kQ8_0, 1, 64, /*seed=*/1);
  StoredWeights source;
  source.add("norm", {stored.bytes.data(), stored.type, Shape{64}, kCpuDevice});
  std::vector<float> out(64), expected(64);
  ASSERT_TRUE(source.read_vector("norm", out).ok());
  kernels::dequantise_row(stored.type, stored.bytes.data(), 64, expected.data());
  EXPECT_EQ(out, expected);
}

TEST(ReadVector, AnErrorOfTheSourceIsPassedOnAndNothingIsReleased) {
  StoredWeights source;
  source.add("norm", DType::kF32, {2}, {1, 2});
  std::vector<float> out(3);
  EXPECT_EQ(source.read_vector("norm", out).code(), Code::kCorrupt);
  EXPECT_EQ(source.read_vector("nrom", out).code(), Code::kNotFound);
  EXPECT_THAT(source.released(), IsEmpty());
}

}  // namespace
}  // namespace choral::quant
