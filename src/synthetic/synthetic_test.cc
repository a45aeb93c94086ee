#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/quant/dequantise.h"
#include "support/temp_dir.h"
#include "synthetic/adapter.h"
#include "synthetic/model.h"
#include "synthetic/weights.h"

namespace choral::synthetic {
namespace {

std::vector<lora::LoRATarget> two_targets() {
  return {{.name = "model.layers.0.self_attn.qkv_proj",
           .members = {{"model.layers.0.self_attn.q_proj", 8}, {"model.layers.0.self_attn.k_proj", 4}},
           .in = 6},
          {.kind = lora::TargetKind::kNorm, .name = "model.norm", .members = {{"model.norm", 6}}, .in = 6}};
}

TEST(SyntheticAdapter, SeedMakesIt) {
  const auto targets = two_targets();
  const auto digest = [&](uint64_t seed) { return make_adapter(targets, {.rank = 2, .seed = seed})->digest(); };
  EXPECT_EQ(digest(1), digest(1));
  EXPECT_NE(digest(1), digest(2));
}

TEST(SyntheticAdapter, WrittenAndReadItIsTheSame) {
  const auto targets = two_targets();
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const testing::TempDir folder;
    const Adapter adapter{.rank = 3, .dtype = dtype, .seed = 5};
    const auto made = make_adapter(targets, adapter);
    ASSERT_TRUE(made.ok()) << made.status().message();
    const auto size = write_adapter(folder.path() / "deep" / "a", targets, adapter);
    ASSERT_TRUE(size.ok()) << size.status().message();
    EXPECT_GE(*size, static_cast<int64_t>(made->size_bytes()));
    const auto peft = lora::PEFTHelper::from_local_dir(folder.path() / "deep" / "a");
    ASSERT_TRUE(peft.ok()) << peft.status().message();
    EXPECT_EQ(peft->largest_rank(), 3);
    const auto read = lora::LoRAModel::from_local_checkpoint(folder.path() / "deep" / "a", *peft, targets);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->digest(), made->digest());
  }
  EXPECT_EQ(make_adapter(targets, {.dtype = DType::kQ8_0}).status().code(), Code::kUnsupported);
}

TEST(SyntheticWeights, AreBoundedInEveryFormat) {
  for (const DType format :
       {DType::kF32,    DType::kBF16,  DType::kF16,     DType::kQ8_0,  DType::kQ4_0,  DType::kQ4_1,  DType::kQ5_0,
        DType::kQ5_1,   DType::kQ4_K,  DType::kQ5_K,    DType::kQ6_K,  DType::kQ2_K,  DType::kQ3_K,  DType::kIQ4_NL,
        DType::kIQ4_XS, DType::kTQ1_0, DType::kTQ2_0,   DType::kMXFP4, DType::kIQ1_S, DType::kIQ1_M, DType::kIQ2_XXS,
        DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S}) {
    Weights weights(format, 1);
    const auto taken = weights.take("any", {3, 256});
    ASSERT_TRUE(taken.ok()) << dtype_name(format);
    EXPECT_EQ(taken->view.dtype, format);
    std::vector<float> row(256);
    float largest = 0;
    for (int64_t r = 0; r < 3; ++r) {
      kernels::dequantise_row(format, taken->view.row(r), 256, row.data());
      for (const float x : row) largest = std::max(largest, std::abs(x));
    }
    EXPECT_GT(largest, 0) << dtype_name(format);
    EXPECT_LT(largest, 2.2F / 16) << dtype_name(format) << ": 1/sqrt(in), twice that where blocks are not symmetric";
  }
}

TEST(SyntheticWeights, SizesShareTheirMemoryAndVectorsAreOnes) {
  Weights weights(DType::kQ4_K, 1);
  EXPECT_EQ(weights.take("a", {4, 256})->view.data, weights.take("b", {4, 256})->view.data);
  EXPECT_EQ(weights.take("a", {4, 40})->view.dtype, DType::kBF16) << "40 is no whole number of blocks";
  const auto vector = weights.take("norm", {5});
  ASSERT_EQ(vector->view.dtype, DType::kF32);
  std::vector<float> ones(5);
  std::memcpy(ones.data(), vector->view.data, 5 * sizeof(float));
  EXPECT_EQ(ones, std::vector<float>(5, 1.0F));
}

TEST(SyntheticModel, KnowsItsNames) {
  for (const auto& name : model_names()) {
    const auto config = model_config(name);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_GT(*config->get_int("hidden_size", io::kPositive), 0);
  }
  EXPECT_THAT(model_config("9000b").status().message(), ::testing::HasSubstr("135m, llama-1b, llama-8b, "));
}

}  // namespace
}  // namespace choral::synthetic
