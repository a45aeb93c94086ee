#include "lora/stacked/lora_memory_pool.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/allocation_counter.h"

namespace choral::lora {
namespace {

std::unique_ptr<LoRAMemoryPool> small_pool() {
  auto pool = LoRAMemoryPool::make({.max_tokens = 8, .max_rank = 16, .max_columns = 32, .middles = 2, .outputs = 1});
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

TEST(LoRAMemoryPool, LendsAlignedBuffersAndTakesThemBack) {
  const auto pool = small_pool();
  const float* first = nullptr;
  {
    auto a = pool->take_middle(8, 16), b = pool->take_middle(3, 5);
    ASSERT_TRUE(a.ok() && b.ok());
    first = a->view().data;
    for (const auto* lease : {&*a, &*b}) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(lease->view().data) % 64, 0u);
      EXPECT_FALSE(lease->is_fallback());
    }
    EXPECT_NE(a->view().data, b->view().data);
    EXPECT_EQ(b->view().rows, 3);
    EXPECT_EQ(b->view().cols, 5);
    EXPECT_EQ(b->view().stride, 5);
    EXPECT_EQ(pool->stats().middles_out, 2);
  }
  EXPECT_EQ(pool->stats().middles_out, 0);
  EXPECT_EQ(pool->stats().most_middles_out, 2);
  EXPECT_EQ(pool->stats().most_middle_floats, 128);
  auto again = pool->take_middle(1, 1), other = pool->take_middle(1, 1);
  EXPECT_TRUE(again->view().data == first || other->view().data == first);
  EXPECT_EQ(pool->stats().fallbacks, 0);
  EXPECT_GE(pool->size_bytes(), (2 * 8 * 16 + 8 * 32) * 4);
}

TEST(LoRAMemoryPool, FallsBackWhenAllAreOutOrTooSmall) {
  const auto pool = small_pool();
  auto out = pool->take_output(8, 32), second = pool->take_output(2, 2), large = pool->take_middle(9, 16);
  ASSERT_TRUE(out.ok() && second.ok() && large.ok());
  EXPECT_FALSE(out->is_fallback());
  EXPECT_TRUE(second->is_fallback());
  EXPECT_TRUE(large->is_fallback());
  for (const auto& row : {0, 8}) large->view().row_span(row)[15] = 1.0F;  // really there
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large->view().data) % 64, 0u);
  EXPECT_EQ(pool->stats().fallbacks, 2);
  EXPECT_EQ(pool->stats().fallback_bytes, (4 + 9 * 16) * 4);
  EXPECT_EQ(pool->stats().outputs_out, 2);
  EXPECT_EQ(pool->stats().takes, 3);
  EXPECT_FALSE(pool->take_middle(16, 8)->is_fallback());  // another shape of the same size
}

TEST(LoRAMemoryPool, LeasesMove) {
  const auto pool = small_pool();
  auto first = pool->take_output(2, 2);
  LoRAMemoryPool::Lease moved = std::move(*first);
  EXPECT_EQ(first->view().data, nullptr);
  EXPECT_EQ(pool->stats().outputs_out, 1);
  moved = std::move(*pool->take_output(4, 4));  // a fallback; the first goes back
  EXPECT_TRUE(moved.is_fallback());
  EXPECT_EQ(pool->stats().outputs_out, 1);
  EXPECT_FALSE(pool->take_output(2, 2)->is_fallback());
}

TEST(LoRAMemoryPool, RefusesImpossibleSizes) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max() / 2;
  EXPECT_FALSE(LoRAMemoryPool::make({.max_tokens = -1, .max_rank = 1, .max_columns = 1}).ok());
  EXPECT_FALSE(LoRAMemoryPool::make({.max_tokens = kHuge, .max_rank = 8, .max_columns = 1}).ok());
  EXPECT_FALSE(LoRAMemoryPool::make({.max_tokens = 1, .max_rank = 1, .max_columns = 1, .middles = -1}).ok());
  const auto pool = small_pool();
  EXPECT_FALSE(pool->take_middle(kHuge, kHuge).ok());
  EXPECT_FALSE(pool->take_middle(-1, 1).ok());
  EXPECT_EQ(pool->stats().takes, 0);
  EXPECT_EQ(pool->stats().fallbacks, 0);
}

TEST(LoRAMemoryPool, LendingAllocatesNothing) {
  const auto pool = small_pool();
  const auto count = choral::testing::count_allocations([&] {
    for (int i = 0; i < 100; ++i) {
      auto middle = pool->take_middle(8, 16);
      auto output = pool->take_output(8, 32);
      output->view().row_span(7)[31] = middle->view().row_span(7)[15];
    }
  });
  EXPECT_EQ(count.allocations, 0);
}

}  // namespace
}  // namespace choral::lora
