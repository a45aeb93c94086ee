#include "cache/kv_pool_size.h"

#include <gtest/gtest.h>

#include <limits>

namespace choral::cache {
namespace {

const KVTokenLayout kSmall{
    .layers = 30, .kv_heads = 3, .key_dim = 64, .value_dim = 64, .element_bytes = 2, .scale_bytes_per_head = 0};

TEST(KVPoolSize, CountsKeysValuesScalesHeadsLayersTokens) {
  EXPECT_EQ(*kv_block_bytes(kSmall, 32), 30u * 3 * (64 + 64) * 2 * 32);
  KVTokenLayout int8 = kSmall;
  int8.element_bytes = 1;
  int8.scale_bytes_per_head = 8;
  EXPECT_EQ(*kv_block_bytes(int8, 32), 30u * 3 * (128 + 8) * 32);
}

TEST(KVPoolSize, HostileNumbersAreErrorsNotWraps) {
  KVTokenLayout huge = kSmall;
  huge.layers = std::numeric_limits<uint64_t>::max() / 2;
  EXPECT_EQ(kv_block_bytes(huge, 32).status().code(), Code::kTooLarge);
  huge = kSmall;
  huge.key_dim = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(kv_block_bytes(huge, 32).status().code(), Code::kTooLarge);
  KVTokenLayout none = kSmall;
  none.kv_heads = 0;
  EXPECT_EQ(kv_block_bytes(none, 32).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(kv_block_bytes(kSmall, 0).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace choral::cache
