#include "lora/store/delta_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"

namespace choral::lora {
namespace {

Tensor norm_test_tensor(int64_t rows, int64_t cols, int step) {
  auto made = Tensor::allocate(DType::kF32, {rows, cols});
  CHORAL_CHECK(made.ok(), made.status().message());
  int i = 0;
  for (float& value : made->as<float>()) value = static_cast<float>(i++ * step % 11 - 5) / 4;
  return std::move(*made);
}

TEST(DeltaNorm, IsTheLengthOfTheWholeProduct) {
  constexpr int64_t kIn = 37, kOut = 21, kRank = 3;
  LoRALayerWeights layer;
  layer.rank = kRank;
  layer.scaling = -1.5F;
  layer.lora_a = AdapterTensor(norm_test_tensor(kRank, kIn, 7));
  layer.lora_b = AdapterTensor(norm_test_tensor(kOut, kRank, 5));
  const Tensor a = norm_test_tensor(kRank, kIn, 7), b = norm_test_tensor(kOut, kRank, 5);
  double square = 0;
  for (int64_t r = 0; r < kOut; ++r) {
    for (int64_t k = 0; k < kIn; ++k) {
      double sum = 0;
      for (int64_t j = 0; j < kRank; ++j) sum += double{b.as<float>()[r * kRank + j]} * a.as<float>()[j * kIn + k];
      square += sum * sum;
    }
  }
  const auto norm = delta_norm(layer);
  ASSERT_TRUE(norm.ok()) << norm.status().to_string();
  EXPECT_NEAR(*norm, 1.5 * std::sqrt(square), 1e-9 * *norm);
}

// Two ranks that undo each other: the products of the halves are large, their sum is nothing.
TEST(DeltaNorm, OfWhatCancelsOutIsZero) {
  LoRALayerWeights layer;
  layer.rank = 2;
  Tensor a = norm_test_tensor(2, 8, 3), b = norm_test_tensor(4, 2, 5);
  for (int64_t k = 0; k < 8; ++k) a.as<float>()[8 + k] = a.as<float>()[k];
  for (int64_t r = 0; r < 4; ++r) b.as<float>()[r * 2 + 1] = -b.as<float>()[r * 2];
  layer.lora_a = AdapterTensor(std::move(a));
  layer.lora_b = AdapterTensor(std::move(b));
  const auto norm = delta_norm(layer);
  ASSERT_TRUE(norm.ok());
  EXPECT_LT(*norm, 1e-6);
}

}  // namespace
}  // namespace choral::lora
