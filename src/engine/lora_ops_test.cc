// The public operators beside their definition in plain loops. What the kernels do with every shape and type: kernels/lora.
#include "choral/lora_ops.h"

#include <gmock/gmock.h>

#include <array>
#include <vector>

namespace choral {
namespace {

using ::testing::HasSubstr;
using Type = LoRAArray::Type;

std::vector<float> lora_ops_values(size_t count, int step) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>(static_cast<int>(i) * step % 13 - 6) / 8;
  return out;
}

class LoRAOpsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kTokens = 5, kIn = 40, kRank = 4, kOut = 24, kStack = 3;
  const std::array<int64_t, 2> x_shape{kTokens, kIn}, middle_shape{kTokens, kRank}, y_shape{kTokens, kOut + 8};
  const std::array<int64_t, 3> a_shape{kStack, kRank, kIn}, b_shape{kStack, kOut, kRank};
  const std::array<int64_t, 1> token_shape{kTokens}, batch_shape{3};
  const std::vector<float> x = lora_ops_values(kTokens * kIn, 5), a = lora_ops_values(kStack * kRank * kIn, 7),
                           b = lora_ops_values(kStack * kOut * kRank, 11);
  std::vector<float> middle = std::vector<float>(kTokens * kRank, 9), y = lora_ops_values(kTokens * (kOut + 8), 3);
  const std::array<int64_t, kTokens> index{2, 2, -1, 0, 0};
  const std::array<int32_t, 3> start{0, 2, 3}, length{2, 1, 2}, of_sequence{2, -1, 0};

  LoRAArray inputs() const { return {x.data(), Type::kF32, x_shape}; }
  LoRAArray a_stack() const { return {a.data(), Type::kF32, a_shape}; }
  MutableLoRAArray middle_out() { return {middle.data(), Type::kF32, middle_shape}; }
  LoRAArray indices() const { return {index.data(), Type::kI64, token_shape}; }
};

TEST_F(LoRAOpsTest, AddTheProductsOfEachRowsOwnAdapter) {
  const auto ops = LoRAOps::make(2);
  ASSERT_TRUE(ops.ok());
  EXPECT_EQ((*ops)->threads(), 2);
  ASSERT_TRUE((*ops)->bgmv_shrink(inputs(), a_stack(), middle_out(), indices(), 0.5F).ok());
  const std::vector<float> by_token = middle, before = y;
  std::fill(middle.begin(), middle.end(), 9.0F);
  ASSERT_TRUE((*ops)
                  ->sgmv_shrink(inputs(), a_stack(), middle_out(), {start.data(), Type::kI32, batch_shape},
                                {length.data(), Type::kI32, batch_shape}, {of_sequence.data(), Type::kI32, batch_shape}, 3, 2,
                                kTokens, 0.5F)
                  .ok());
  EXPECT_EQ(middle, by_token);
  ASSERT_TRUE((*ops)
                  ->bgmv_expand_slice({middle.data(), Type::kF32, middle_shape}, {b.data(), Type::kF32, b_shape},
                                      {y.data(), Type::kF32, y_shape}, indices(), 8, kOut)
                  .ok());
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t r = 0; r < kRank; ++r) {
      float sum = 0;
      for (int64_t k = 0; k < kIn && index[t] >= 0; ++k) sum += x[t * kIn + k] * a[(index[t] * kRank + r) * kIn + k];
      EXPECT_FLOAT_EQ(middle[t * kRank + r], index[t] < 0 ? 9.0F : 0.5F * sum) << t << ", " << r;
    }
    for (int64_t c = 0; c < kOut + 8; ++c) {
      float wanted = before[t * (kOut + 8) + c];
      for (int64_t r = 0; r < kRank && c >= 8 && index[t] >= 0; ++r)
        wanted += middle[t * kRank + r] * b[(index[t] * kOut + c - 8) * kRank + r];
      EXPECT_NEAR(y[t * (kOut + 8) + c], wanted, 1e-4) << t << ", " << c;
    }
  }
}

TEST_F(LoRAOpsTest, RefuseWhatDoesNotFit) {
  EXPECT_EQ(LoRAOps::make(-1).status().code(), Code::kInvalidArgument);
  const auto ops = LoRAOps::make(1);
  ASSERT_TRUE(ops.ok());
  const std::array<int64_t, 5> many{1, 1, kStack, kRank, kIn};
  const auto refused = [&](const Status& status, const char* says) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(says));
  };
  refused((*ops)->bgmv_shrink(inputs(), {a.data(), Type::kF32, many}, middle_out(), indices()),
          "lora_a_weights has 5 dimensions");
  refused((*ops)->bgmv_shrink({middle.data(), Type::kF32, middle_shape}, a_stack(), middle_out(), indices()),
          "bgmv_shrink: output_tensor overlaps inputs");
  const std::array<int64_t, kTokens> beyond{0, 0, kStack, 0, 0};
  refused((*ops)->bgmv_shrink(inputs(), a_stack(), middle_out(), {beyond.data(), Type::kI64, token_shape}),
          "lora_indices_tensor[2] is 3");
  EXPECT_EQ(middle, std::vector<float>(kTokens * kRank, 9)) << "what is refused writes nothing";
}

}  // namespace
}  // namespace choral
