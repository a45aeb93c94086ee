#include "quant/joined_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/float16.h"
#include "kernels/quant/dequantise.h"
#include "platform/cpu_context_test.h"
#include "quant/shards.h"

namespace choral::quant {
namespace {

using ::testing::ElementsAre;

Tensor counting(DType type, const Shape& shape, float from) {
  Tensor out = *Tensor::allocate(type, shape);
  if (type == DType::kF32) std::iota(out.as<float>().begin(), out.as<float>().end(), from);
  if (type == DType::kF16) {
    for (auto& x : out.as<Float16>()) x = to_float16(from++);
  }
  return out;
}

std::vector<float> joined(const io::SourceTensor& weight) {
  platform::testing::CpuContext cpu;
  Tensor memory;
  const auto view = as_rows(*cpu, weight, memory);
  EXPECT_TRUE(view.ok());
  EXPECT_EQ(view->shape, weight.view.shape);
  std::vector<float> out(view->shape.elements());
  kernels::dequantise_row(view->dtype, view->data, std::ssize(out), out.data());
  return out;
}

TEST(JoinedRows, RowsInTurns) {
  const Tensor gate = counting(DType::kF32, {2, 3}, 0), up = counting(DType::kF32, {2, 3}, 10);
  const io::SourceTensor weight{
      .view = {gate.view().data, DType::kF32, {4, 3}, kCpuDevice}, .row_order = {}, .parts = {{gate.view(), 1}, {up.view(), 1}}};
  EXPECT_THAT(joined(weight), ElementsAre(0, 1, 2, 10, 11, 12, 3, 4, 5, 13, 14, 15));
}

TEST(JoinedRows, AVectorsRowsAreItsElements) {
  const Tensor gate = counting(DType::kF32, {3}, 0), up = counting(DType::kF16, {3}, 10);
  const io::SourceTensor bias{
      .view = {gate.view().data, DType::kF32, {6}, kCpuDevice}, .row_order = {}, .parts = {{gate.view(), 1}, {up.view(), 1}}};
  std::vector<float> out(6);
  read_vector(bias, {}, out);
  EXPECT_THAT(out, ElementsAre(0, 10, 1, 11, 2, 12));
}

// Two heads of two keys and one value over a latent of three; the keys are stored [heads, 3, 2].
TEST(JoinedRows, KeysOfAHeadAreTurnedRound) {
  for (const DType type : {DType::kF32, DType::kF16}) {
    const Tensor keys = counting(type, {2, 3, 2}, 0), values = counting(DType::kF32, {2, 1, 3}, 20);
    const io::SourceTensor weight{.view = {keys.view().data, DType::kF32, {6, 3}, kCpuDevice},
                                  .row_order = {},
                                  .parts = {{keys.view(), 2, /*transposed=*/true}, {values.view(), 1}}};
    EXPECT_THAT(joined(weight), ElementsAre(0, 2, 4, 1, 3, 5, 20, 21, 22, 6, 8, 10, 7, 9, 11, 23, 24, 25));
  }
}

TEST(JoinedRows, BlocksStayAsTheyAreOrBecomeTheirNumbers) {
  constexpr int64_t kCols = 32;
  Tensor a = *Tensor::allocate(DType::kQ8_0, {2, kCols}), b = *Tensor::allocate(DType::kQ8_0, {2, kCols});
  for (Tensor* tensor : {&a, &b}) {
    for (int64_t i = 0; i < tensor->size_bytes(); ++i) tensor->data()[i] = static_cast<std::byte>(i * 7 + (tensor == &a ? 0 : 3));
    for (int64_t row = 0; row < 2; ++row) tensor->data()[row * 34 + 1] = std::byte{0x3c};  // a scale near one
  }
  io::SourceTensor weight{
      .view = {a.data(), DType::kQ8_0, {4, kCols}, kCpuDevice}, .row_order = {}, .parts = {{a.view(), 1}, {b.view(), 1}}};
  const auto blocks = joined(weight);
  std::vector<float> row(kCols);
  for (int64_t r = 0; r < 4; ++r) {
    kernels::dequantise_row(DType::kQ8_0, (r % 2 == 0 ? a : b).view().row(r / 2), kCols, row.data());
    EXPECT_TRUE(std::equal(row.begin(), row.end(), blocks.begin() + r * kCols)) << r;
  }
  weight.view.dtype = DType::kF32;
  EXPECT_EQ(joined(weight), blocks);
}

}  // namespace
}  // namespace choral::quant
