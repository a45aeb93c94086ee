#include "cache/kv_pool_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace choral::cache {
namespace {

using testing::HasSubstr;

const KVShape kSmall{.layers = 30, .kv_heads = 3, .key_dim = 64, .value_dim = 64, .element_bytes = 2, .scale_bytes_per_head = 0};

TEST(KVPoolSize, CountsKeysValuesScalesHeadsLayersTokens) {
  EXPECT_EQ(*kv_block_bytes(kSmall, 32), 30u * 3 * (64 + 64) * 2 * 32);
  KVShape int8 = kSmall;
  int8.element_bytes = 1;
  int8.scale_bytes_per_head = 8;
  EXPECT_EQ(*kv_block_bytes(int8, 32), 30u * 3 * (128 + 8) * 32);
}

TEST(KVPoolSize, BudgetIsNeverExceeded) {
  const uint64_t block = *kv_block_bytes(kSmall, 32);
  EXPECT_EQ(*kv_blocks_in_budget(kSmall, 32, 10 * block, 320, 0), 10);
  EXPECT_EQ(*kv_blocks_in_budget(kSmall, 32, 11 * block - 1, 320, 0), 10);
  EXPECT_EQ(*kv_blocks_in_budget(kSmall, 32, 100 * block, 320, 40), 40);
  EXPECT_EQ(*kv_blocks_in_budget(kSmall, 32, 100 * block, 320, 4), 10);  // one full request always fits
}

TEST(KVPoolSize, TooSmallABudgetNamesTheOneThatWouldDo) {
  const uint64_t block = *kv_block_bytes(kSmall, 32);
  const auto blocks = kv_blocks_in_budget(kSmall, 32, 10 * block, 321, 0);
  ASSERT_FALSE(blocks.ok());
  EXPECT_EQ(blocks.status().code(), Code::kTooLarge);
  EXPECT_THAT(blocks.status().message(), HasSubstr(std::to_string(11 * block)));
}

TEST(KVPoolSize, HostileNumbersAreErrorsNotWraps) {
  KVShape huge = kSmall;
  huge.layers = std::numeric_limits<uint64_t>::max() / 2;
  EXPECT_EQ(kv_block_bytes(huge, 32).status().code(), Code::kTooLarge);
  huge = kSmall;
  huge.key_dim = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(kv_block_bytes(huge, 32).status().code(), Code::kTooLarge);
  KVShape none = kSmall;
  none.kv_heads = 0;
  EXPECT_EQ(kv_block_bytes(none, 32).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(kv_block_bytes(kSmall, 0).status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(kv_blocks_in_budget(kSmall, 32, 1 << 30, 0, 0).ok());
  const KVShape byte{.layers = 1, .kv_heads = 1, .key_dim = 1, .value_dim = 0, .element_bytes = 1, .scale_bytes_per_head = 0};
  EXPECT_EQ(*kv_blocks_in_budget(byte, 1, std::numeric_limits<uint64_t>::max(), 1, 0), 1 << 28);
}

}  // namespace
}  // namespace choral::cache
