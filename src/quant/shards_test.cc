#include "quant/shards.h"

#include <gtest/gtest.h>

#include <numeric>

#include "platform/cpu_context_test.h"

namespace choral::quant {
namespace {

template <class Element>
void expect_turned(DType type) {
  platform::testing::CpuContext cpu;
  const auto& ctx = *cpu;
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {31, 33}, {32, 64}, {70, 5}}) {
    Tensor stored = *Tensor::allocate(type, {cols, rows});
    std::iota(stored.as<Element>().begin(), stored.as<Element>().end(), Element{1});
    io::SourceTensor weight{.view = stored.view(), .row_order = {}, .transposed = true};
    weight.view.shape = {rows, cols};
    Tensor memory;
    const auto view = as_rows(ctx, weight, memory);
    ASSERT_TRUE(view.ok());
    EXPECT_EQ(view->shape, (Shape{rows, cols}));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) ASSERT_EQ(memory.as<Element>()[r * cols + c], stored.as<Element>()[c * rows + r]);
    }
    weight.transposed = false;
    EXPECT_EQ(as_rows(ctx, weight, memory)->data, stored.view().data);
  }
}

TEST(AsRows, ColumnsBecomeRows) {
  expect_turned<uint16_t>(DType::kBF16);
  expect_turned<uint32_t>(DType::kF32);
}

}  // namespace
}  // namespace choral::quant
