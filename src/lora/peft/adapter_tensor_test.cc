#include "lora/peft/adapter_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/float16.h"

namespace choral::lora {
namespace {

using ::testing::ElementsAre;

AdapterTensor matrix(std::vector<float> values, Shape shape, DType dtype = DType::kF32) {
  auto tensor = Tensor::allocate(dtype, shape);
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) tensor->as<float>()[i] = values[i];
    if (dtype == DType::kBF16) tensor->as<BFloat16>()[i] = to_bfloat16(values[i]);
  }
  return AdapterTensor(std::move(*tensor));
}

std::vector<float> floats_of(const TensorView& view) {
  const auto tensor = to_float_tensor(view);
  const auto span = tensor->as<float>();
  return {span.begin(), span.end()};
}

TEST(AdapterTensor, RowsAndNonFinite) {
  const AdapterTensor tensor = matrix({1, 2, 3, 4, 5, 6}, {3, 2});
  EXPECT_THAT(floats_of(tensor.rows(1, 2).view), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(floats_of(matrix({1, 2, 3}, {3}).rows(2, 1).view), ElementsAre(3));
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
