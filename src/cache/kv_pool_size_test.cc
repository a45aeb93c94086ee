#include "cache/kv_pool_size.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace choral::cache {
namespace {

const KVTokenLayout kSmall{.kv_heads = 3, .key_dim = 64, .value_dim = 64, .element_bytes = 2, .scale_bytes_per_head = 0};

std::vector<KVTokenLayout> many(KVTokenLayout layout) { return std::vector<KVTokenLayout>(30, layout); }

TEST(KVPoolSize, CountsKeysValuesScalesHeadsLayersTokens) {
  EXPECT_EQ(*kv_block_bytes(many(kSmall), 32), 30u * 3 * (64 + 64) * 2 * 32);
  KVTokenLayout int8 = kSmall;
  int8.element_bytes = 1;
  int8.scale_bytes_per_head = 8;
  EXPECT_EQ(*kv_block_bytes(many(int8), 32), 30u * 3 * (128 + 8) * 32);
}

TEST(KVPoolSize, EachLayerHasAShapeOfItsOwn) {
  KVTokenLayout wide = kSmall, latent = kSmall;
  wide.kv_heads = 5;
  latent.value_dim = 0;
  EXPECT_EQ(*kv_block_bytes(std::vector{kSmall, wide, latent}, 32), (3u * 128 + 5 * 128 + 3 * 64) * 2 * 32);
}

TEST(KVPoolSize, HostileNumbersAreErrorsNotWraps) {
  KVTokenLayout huge = kSmall;
  huge.kv_heads = std::numeric_limits<uint64_t>::max() / 256;  // a layer fits, two do not
  EXPECT_EQ(kv_block_bytes(std::vector{huge, huge}, 32).status().code(), Code::kTooLarge);
  huge = kSmall;
  huge.key_dim = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(kv_block_bytes(many(huge), 32).status().code(), Code::kTooLarge);
  KVTokenLayout none = kSmall;
  none.kv_heads = 0;
  const auto refused = kv_block_bytes(std::vector{kSmall, none}, 32).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find("layer 1"), std::string::npos) << refused.message();
  EXPECT_EQ(kv_block_bytes(many(kSmall), 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(kv_block_bytes({}, 32).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace choral::cache
