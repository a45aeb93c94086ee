#include "cache/prefix_index.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <vector>

namespace choral::cache {
namespace {

// `home` are the bytes that choose the slot, `rest` makes the key different: collisions of the table at will.
PrefixKey key_of(uint8_t home, uint8_t rest) {
  PrefixKey key{};
  key[0] = home;
  key[31] = rest;
  return key;
}

TEST(PrefixIndex, FindsWhatWasInsertedByTheWholeKey) {
  PrefixIndex index(4);
  EXPECT_TRUE(index.insert(key_of(3, 1), 2));
  EXPECT_EQ(index.find(key_of(3, 1)), 2);
  EXPECT_EQ(index.find(key_of(3, 2)), kNoBlock);
  EXPECT_TRUE(index.contains(2));
  EXPECT_FALSE(index.contains(1));
}

TEST(PrefixIndex, TheFirstBlockOfAKeyStays) {
  PrefixIndex index(4);
  EXPECT_TRUE(index.insert(key_of(0, 1), 1));
  EXPECT_FALSE(index.insert(key_of(0, 1), 3));
  EXPECT_EQ(index.find(key_of(0, 1)), 1);
  EXPECT_FALSE(index.contains(3));
  EXPECT_FALSE(index.erase(3));
  EXPECT_EQ(index.find(key_of(0, 1)), 1);
}

TEST(PrefixIndex, RemovalKeepsCollidingKeysReachable) {
  PrefixIndex index(4);  // 8 slots; keys wrap around the end
  for (uint8_t i = 0; i < 4; ++i) index.insert(key_of(7, i), i);
  EXPECT_TRUE(index.erase(0));
  EXPECT_TRUE(index.erase(2));
  EXPECT_EQ(index.find(key_of(7, 0)), kNoBlock);
  EXPECT_EQ(index.find(key_of(7, 1)), 1);
  EXPECT_EQ(index.find(key_of(7, 2)), kNoBlock);
  EXPECT_EQ(index.find(key_of(7, 3)), 3);
}

RC_GTEST_PROP(PrefixIndex, BehavesAsAMap, ()) {
  const int32_t count = *rc::gen::inRange(1, 12);
  PrefixIndex index(count);
  std::map<PrefixKey, BlockId> model;
  const int steps = *rc::gen::inRange(0, 120);
  for (int step = 0; step < steps; ++step) {
    const BlockId block = *rc::gen::inRange(0, count);
    const bool has_key = index.contains(block);
    if (has_key && *rc::gen::inRange(0, 3) > 0) {
      RC_ASSERT(index.erase(block));
      std::erase_if(model, [&](const auto& entry) { return entry.second == block; });
    } else if (!has_key) {
      const PrefixKey key = key_of(*rc::gen::inRange<uint8_t>(0, 4), *rc::gen::inRange<uint8_t>(0, 6));
      RC_ASSERT(index.insert(key, block) == model.emplace(key, block).second);
    }
    RC_ASSERT(index.size() == static_cast<int32_t>(model.size()));
    for (uint8_t home = 0; home < 4; ++home) {
      for (uint8_t rest = 0; rest < 6; ++rest) {
        const auto found = model.find(key_of(home, rest));
        RC_ASSERT(index.find(key_of(home, rest)) == (found == model.end() ? kNoBlock : found->second));
      }
    }
  }
}

}  // namespace
}  // namespace choral::cache
