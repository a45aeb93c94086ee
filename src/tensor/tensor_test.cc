#include "tensor/tensor.h"

#include <gtest/gtest.h>

namespace choral {
namespace {

TEST(DType, BlockSizes) {
  EXPECT_EQ(row_bytes(DType::kQ4_0, 64), 36);
  EXPECT_EQ(row_bytes(DType::kQ6_K, 512), 420);
  EXPECT_EQ(row_bytes(DType::kBF16, 3), 6);
  EXPECT_TRUE(facts(DType::kQ4_K).is_block);
  EXPECT_FALSE(facts(DType::kI8).is_floating);
}

TEST(DType, NamesAndAliases) {
  for (const auto* name : {"float32", "fp32", "float", "f32"}) EXPECT_EQ(*parse_dtype(name), DType::kF32);
  EXPECT_EQ(*parse_dtype("half"), DType::kF16);
  EXPECT_EQ(*parse_dtype("q4_k"), DType::kQ4_K);
  EXPECT_NE(parse_dtype("float12").status().message().find("float12"), std::string::npos);
}

TEST(Tensor, OwnsZeroedMemory) {
  auto tensor = Tensor::allocate(DType::kF32, {3, 4});
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(tensor->size_bytes(), 48);
  for (const float x : tensor->as<float>()) EXPECT_EQ(x, 0.0f);
  EXPECT_EQ(tensor->view().rows(), 3);
  EXPECT_EQ(tensor->view().row(2) - tensor->view().data, 32);
  EXPECT_EQ(tensor->shape().to_string(), "[3, 4]");
}

TEST(MatrixView, SubViewsKeepTheStride) {
  float data[12];
  for (int i = 0; i < 12; ++i) data[i] = static_cast<float>(i);
  const MatrixView<float> m(data, 3, 4);
  EXPECT_EQ(m.sub_cols(1, 2).row(2)[0], 9.0f);
  EXPECT_EQ(m.sub_rows(1, 2).row(1)[3], 11.0f);
  const MatrixView<const float> read_only = m;
  EXPECT_EQ(read_only.row(1)[1], 5.0f);
}

}  // namespace
}  // namespace choral
