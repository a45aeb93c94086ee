#include "lora/peft/lora_layer_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/float16.h"

namespace choral::lora {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

AdapterTensor matrix(std::vector<float> values, Shape shape, DType dtype = DType::kF32) {
  auto tensor = Tensor::allocate(dtype, shape);
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) tensor->as<float>()[i] = values[i];
    if (dtype == DType::kBF16) tensor->as<BFloat16>()[i] = to_bfloat16(values[i]);
  }
  return AdapterTensor(std::move(*tensor));
}

std::vector<float> values_of(const TensorView& view) {
  const auto tensor = to_float_tensor(view);
  const auto span = tensor->as<float>();
  return {span.begin(), span.end()};
}

// A [2, 3], B [2, 2].
LoRALayerWeights small(DType dtype = DType::kF32) {
  LoRALayerWeights layer;
  layer.module_name = "m";
  layer.rank = 2;
  layer.lora_alpha = 6;
  layer.scaling = 3.0F;
  layer.lora_a = matrix({1, 2, 3, 4, 5, 6}, {2, 3}, dtype);
  layer.lora_b = matrix({1, 10, 100, 1000}, {2, 2}, dtype);
  layer.bias = matrix({7, 8}, {2});
  return layer;
}

TEST(LoRALayerWeights, DeltaIsScaledAndInByOut) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    LoRALayerWeights layer = small(dtype);
    EXPECT_EQ(layer.input_dim(), 3);
    EXPECT_EQ(layer.output_dim(), 2);
    const auto delta = layer.compute_delta_weight();
    ASSERT_TRUE(delta.ok());
    EXPECT_EQ((*delta)->shape(), Shape({3, 2}));
    // column o of row i: 3 · (A[0,i]·B[o,0] + A[1,i]·B[o,1])
    EXPECT_THAT(values_of((*delta)->view()), ElementsAre(123, 12300, 156, 15600, 189, 18900));
  }
}

TEST(LoRALayerWeights, OptimizeFoldsTheScaleOnce) {
  LoRALayerWeights layer = small();
  const LoRALayerWeights shared = layer;
  const auto before = values_of((*layer.compute_delta_weight())->view());
  ASSERT_TRUE(layer.optimize().ok());
  EXPECT_EQ(layer.scaling, 1.0F);
  EXPECT_THAT(values_of(layer.lora_b.view), ElementsAre(3, 30, 300, 3000));
  EXPECT_THAT(values_of(layer.bias.view), ElementsAre(21, 24));
  EXPECT_THAT(values_of(shared.lora_b.view), ElementsAre(1, 10, 100, 1000));
  EXPECT_EQ(shared.scaling, 3.0F);
  EXPECT_EQ(values_of((*layer.compute_delta_weight())->view()), before);
  ASSERT_TRUE(layer.optimize().ok());
  EXPECT_THAT(values_of(layer.lora_b.view), ElementsAre(3, 30, 300, 3000));
}

TEST(LoRALayerWeights, DeltaIsKeptFromTheSecondTimeOn) {
  LoRALayerWeights layer = small();
  const auto first = *layer.compute_delta_weight();
  EXPECT_FALSE(layer.keeps_delta_weight());
  const auto second = *layer.compute_delta_weight();
  EXPECT_NE(first, second);
  EXPECT_TRUE(layer.keeps_delta_weight());
  EXPECT_EQ(*layer.compute_delta_weight(), second);
  ASSERT_TRUE(layer.optimize().ok());
  EXPECT_FALSE(layer.keeps_delta_weight());

  LoRALayerWeights large;
  large.rank = 1;
  large.lora_a = matrix(std::vector<float>(3000, 1), {1, 3000});
  large.lora_b = matrix(std::vector<float>(2000, 1), {2000, 1});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(large.compute_delta_weight().ok());
  EXPECT_FALSE(large.keeps_delta_weight());  // 24 MB
}

TEST(AdapterTensor, RowsAndNonFinite) {
  const AdapterTensor tensor = matrix({1, 2, 3, 4, 5, 6}, {3, 2});
  EXPECT_THAT(values_of(tensor.rows(1, 2).view), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(values_of(matrix({1, 2, 3}, {3}).rows(2, 1).view), ElementsAre(3));
  std::vector<float> many(5000, 1.0F);
  EXPECT_FALSE(first_non_finite(matrix(many, {5000}).view));
  many[4097] = -std::numeric_limits<float>::infinity();
  many[4999] = std::numeric_limits<float>::quiet_NaN();
  for (const DType dtype : {DType::kF32, DType::kBF16}) EXPECT_EQ(first_non_finite(matrix(many, {5000}, dtype).view), 4097);
  EXPECT_TRUE(is_all_zero(matrix({0.0F, -0.0F}, {2}).view));
  EXPECT_FALSE(is_all_zero(matrix({0.0F, 1e-45F}, {2}).view));
}

}  // namespace
}  // namespace choral::lora
