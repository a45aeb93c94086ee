#include "lora/store/delta_weight.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace choral::lora {
namespace {

Tensor tensor(int64_t rows, int64_t cols, int step) {
  auto made = Tensor::allocate(DType::kF32, {rows, cols});
  CHORAL_CHECK(made.ok(), made.status().message());
  int i = 0;
  for (float& value : made->as<float>()) value = static_cast<float>(i++ * step % 11 - 5) / 4;
  return std::move(*made);
}

TEST(DeltaWeight, IsAddedToTheRowsThatAreAskedFor) {
  constexpr int64_t kIn = 37, kOut = 21, kRank = 3, kFirst = 8, kRows = 6;
  LoRALayerWeights layer;
  layer.rank = kRank;
  layer.scaling = 1.5F;
  layer.lora_a = AdapterTensor(tensor(kRank, kIn, 7));
  layer.lora_b = AdapterTensor(tensor(kOut, kRank, 5));
  const Tensor a = tensor(kRank, kIn, 7), b = tensor(kOut, kRank, 5), before = tensor(kRows, kIn, 3);
  const auto delta = DeltaWeight::of(layer);
  ASSERT_TRUE(delta.ok()) << delta.status().to_string();
  Tensor w = tensor(kRows, kIn, 3);
  delta->compute_delta_weight(cpu_level(), kFirst, MatrixView<float>(w.as<float>().data(), kRows, kIn));
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t k = 0; k < kIn; ++k) {
      double sum = before.as<float>()[r * kIn + k];
      for (int64_t j = 0; j < kRank; ++j) {
        sum += 1.5 * b.as<float>()[(kFirst + r) * kRank + j] * a.as<float>()[j * kIn + k];
      }
      EXPECT_NEAR(w.as<float>()[r * kIn + k], sum, 1e-5) << r << ", " << k;
    }
  }
}

}  // namespace
}  // namespace choral::lora
