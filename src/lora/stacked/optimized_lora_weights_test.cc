#include "lora/stacked/optimized_lora_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/float16.h"
#include "lora/store/built_adapter_test.h"
#include "platform/cpu_context_test.h"

namespace choral::lora {
namespace {

using choral::lora::testing::AdapterBuilder;
using choral::lora::testing::config_json;
using choral::lora::testing::kHidden;
using choral::lora::testing::kKeys;
using ::testing::HasSubstr;

constexpr int kTarget = 2;  // the first layer's q, k, v
constexpr LoRAColumns kQuery{0, kHidden}, kKey{kHidden, kKeys}, kValue{kHidden + kKeys, kKeys};

std::shared_ptr<const PackedAdapter> packed(const AdapterBuilder& builder, const std::string& config) {
  static const auto targets = testing::small_targets();
  const auto model = testing::accepted(builder, config);
  platform::testing::CpuContext cpu(1);
  auto adapter = PackedAdapter::pack(*cpu, model, targets, {});
  CHORAL_CHECK(adapter.ok(), adapter.status().message());
  return std::move(*adapter);
}

float value(const TensorView& t, int64_t row, int64_t col) {
  const std::byte* at = t.row(row) + row_bytes(t.dtype, col);
  float f;
  uint16_t half;
  std::memcpy(&half, at, sizeof half);
  if (t.dtype == DType::kF16) return to_float(Float16{half});
  if (t.dtype == DType::kBF16) return to_float(BFloat16{half});
  std::memcpy(&f, at, sizeof f);
  return f;
}

TEST(OptimizedLoRAWeights, TermsLieSideBySideScaledAndPadded) {
  // alpha / r = 2; A is 0.01, 0.02, …, B is 0.03, 0.04, … on q and v.
  const auto adapter = packed(AdapterBuilder().query_and_value(), config_json());
  const PackedVoice voice{{adapter, 1.0F}, {adapter, -0.5F}};
  EXPECT_EQ(OptimizedLoRAWeights::voice_rank(voice, kTarget, kQuery), 4);
  EXPECT_EQ(OptimizedLoRAWeights::voice_rank(voice, kTarget, kKey), 0);
  EXPECT_EQ(OptimizedLoRAWeights::voice_rank(voice, kTarget + 1, kQuery), 0);
  for (const auto& [columns, dtype] :
       {std::pair{kQuery, DType::kF32}, std::pair{kValue, DType::kBF16}, std::pair{kValue, DType::kF16}}) {
    const auto weights = OptimizedLoRAWeights::create(voice, kTarget, columns, kHidden, 8, dtype);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    const TensorView a = weights->lora_a(), b = weights->lora_b();
    EXPECT_EQ(a.shape, (Shape{8, kHidden}));
    EXPECT_EQ(b.shape, (Shape{columns.count, 8}));
    for (const auto& view : {a, b}) EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % kCacheLineBytes, 0u);
    const float most = dtype == DType::kF32 ? 1e-6F : 2e-3F;
    for (int64_t j = 0; j < 8; ++j) {
      const float factor = j < 2 ? 2.0F : j < 4 ? -1.0F : 0.0F;
      for (int64_t k = 0; k < kHidden; ++k) {
        EXPECT_NEAR(value(a, j, k), factor * 0.01F * static_cast<float>(j % 2 * kHidden + k + 1), most);
      }
      for (int64_t o = 0; o < columns.count; ++o) {
        EXPECT_NEAR(value(b, o, j), j < 4 ? 0.01F * static_cast<float>(o * 2 + j % 2 + 3) : 0.0F, most);
      }
    }
  }
}

TEST(OptimizedLoRAWeights, AValueThatDoesNotFitIsRefused) {
  AdapterBuilder builder = AdapterBuilder().query_and_value();
  builder.at("model.layers.0.self_attn.q_proj.lora_A.weight").values[3] = 60'000.0F;
  const PackedVoice voice{{packed(builder, config_json()), 1.0F}};
  EXPECT_TRUE(OptimizedLoRAWeights::create(voice, kTarget, kQuery, kHidden, 2, DType::kF32).ok());
  EXPECT_TRUE(OptimizedLoRAWeights::create(voice, kTarget, kQuery, kHidden, 2, DType::kBF16).ok());
  const auto refused = OptimizedLoRAWeights::create(voice, kTarget, kQuery, kHidden, 2, DType::kF16);
  EXPECT_THAT(refused.status().message(), HasSubstr("does not fit into float16"));
}

}  // namespace
}  // namespace choral::lora
