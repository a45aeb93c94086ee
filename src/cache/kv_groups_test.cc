#include "cache/kv_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "cache/kv_cache_manager.h"

namespace choral::cache {
namespace {

using testing::ElementsAre;

KVTokenLayout layer(int32_t window, uint64_t key_dim = 64) {
  return {.kv_heads = 2, .key_dim = key_dim, .value_dim = 64, .window = window};
}

// `cycle` layers of which the last sees everything, repeated until there are `count`.
std::vector<KVTokenLayout> alternating(int count, int cycle) {
  std::vector<KVTokenLayout> layers;
  for (int i = 1; i <= count; ++i) layers.push_back(layer(i % cycle == 0 ? 0 : 1024));
  return layers;
}

// No two layers share a place, and each is in a group of its window.
void expect_sound(const std::vector<KVTokenLayout>& layers, const KvGroups& groups) {
  ASSERT_EQ(groups.layers.size(), layers.size());
  std::set<std::tuple<int32_t, int32_t, int32_t>> places;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto [group, array, part] = groups.layers[i];
    EXPECT_TRUE(places.emplace(group, array, part).second);
    EXPECT_LT(part, groups.parts.at(group));
    EXPECT_EQ(groups.windows.at(group), layers[i].window);
    EXPECT_LT(array, std::ssize(groups.arrays));
  }
}

TEST(KvGroups, LayersAlikeAreOneGroup) {
  for (const int32_t window : {0, 4096}) {
    const std::vector<KVTokenLayout> layers(5, layer(window));
    const auto groups = group_layers(layers);
    EXPECT_THAT(groups.windows, ElementsAre(window));
    EXPECT_EQ(groups.arrays.size(), 5U);
    expect_sound(layers, groups);
  }
}

TEST(KvGroups, AlternatingLayersShareTheirArrays) {
  const auto layers = alternating(26, 2);  // Gemma 2's
  const auto groups = group_layers(layers);
  EXPECT_THAT(groups.windows, ElementsAre(1024, 0));
  EXPECT_EQ(groups.arrays.size(), 13U);
  expect_sound(layers, groups);
}

TEST(KvGroups, LeaveAsLittleUnusedAsTheirNumberAllows) {
  const auto layers = alternating(34, 6);  // Gemma 3's of 4B: 29 with a window, 5 without
  const auto groups = group_layers(layers);
  EXPECT_THAT(groups.windows, ElementsAre(1024, 1024, 1024, 1024, 1024, 1024, 0));
  EXPECT_EQ(groups.arrays.size(), 5U);
  expect_sound(layers, groups);
  for (int count = 1; count <= 80; ++count) {
    const auto many = alternating(count, 6);
    const auto grouped = group_layers(many);
    expect_sound(many, grouped);
    EXPECT_LE(std::ssize(grouped.windows), kMostGroups);
  }
}

KVTokenLayout shape(uint64_t heads, uint64_t dim, int32_t window, uint64_t scales = 0) {
  return {.kv_heads = heads, .key_dim = dim, .value_dim = dim, .scale_bytes_per_head = scales, .window = window};
}

// Gemma 4's: of E4B those that see all are the larger, of 26B-A4B those with a window.
TEST(KvGroups, LayersOfHalfTheSizeShareAPlace) {
  std::vector<KVTokenLayout> e4b, a4b;
  for (int i = 1; i <= 24; ++i) e4b.push_back(i % 6 == 0 ? shape(2, 512, 0) : shape(2, 256, 512));
  for (int i = 1; i <= 30; ++i) a4b.push_back(i % 6 == 0 ? shape(2, 512, 0) : shape(8, 256, 1024));
  const auto small = group_layers(e4b), large = group_layers(a4b);
  expect_sound(e4b, small);
  EXPECT_THAT(small.windows, ElementsAre(512, 512, 512, 512, 512, 0, 0));
  EXPECT_THAT(small.parts, ElementsAre(2, 2, 2, 2, 2, 1, 1));
  EXPECT_EQ(small.arrays, std::vector<KVTokenLayout>(2, shape(2, 512, 0)));
  expect_sound(a4b, large);
  EXPECT_EQ(large.parts.front(), 1);
  EXPECT_EQ(large.parts.back(), 2);
  EXPECT_EQ(large.arrays.front(), shape(8, 256, 1024));
}

TEST(KvGroups, OtherUnequalShapesAreOneGroupThatSeesAll) {
  for (const auto& layers : std::vector<std::vector<KVTokenLayout>>{
           {layer(16), layer(0, 128)},                     // keys twice as large, values not
           {shape(2, 64, 16), shape(2, 96, 0)},            // no whole number of times
           {shape(1, 64, 16), shape(8, 64, 0)},            // too many
           {shape(2, 64, 16, 8), shape(2, 128, 0, 8)}}) {  // scales of int8 stand beside the keys
    const auto groups = group_layers(layers);
    EXPECT_THAT(groups.windows, ElementsAre(0));
    EXPECT_THAT(groups.parts, ElementsAre(1));
    EXPECT_EQ(groups.arrays, layers);
  }
}

// What a long sequence keeps at 16k tokens of Gemma 3's 34 layers, beside what it would without windows.
TEST(KvGroups, AWindowKeepsAFractionOfALongSequence) {
  constexpr int64_t kTokens = 16384;
  const auto layers = alternating(34, 6);
  const auto groups = group_layers(layers);
  const auto bytes_of = [](const std::vector<KVTokenLayout>& arrays) { return *kv_block_bytes(arrays, 32); };
  const KVCacheManager without({4096, 32}, 1024, false), with({4096, 32, groups.windows}, 1024, false);
  const double all = static_cast<double>(without.most_blocks(kTokens)) * static_cast<double>(bytes_of(layers));
  const double kept = static_cast<double>(with.most_blocks(kTokens)) * static_cast<double>(bytes_of(groups.arrays));
  EXPECT_LT(kept, 0.3 * all);
}

TEST(KvGroups, AStepHoldsNoMoreThanMostBlocks) {
  KVCacheManager cache({64, 4, {0, 6}}, 5, false);
  std::vector<BlockTable> tables(2);
  for (auto& table : tables) table.reserve(32);
  for (int64_t computed = 0; computed < 100; computed += 5) {
    ASSERT_TRUE(cache.grow(tables, computed, 100));
    EXPECT_LE(64 - cache.free_blocks(), cache.most_blocks(100));
    EXPECT_EQ(tables[0].size(), 25);
    EXPECT_EQ(tables[1].size(), cache.blocks_for(std::min<int64_t>(computed + 5, 100)));
    EXPECT_EQ(tables[1].begin(), cache.first_seen(1, computed));
  }
  cache.release(tables);
  EXPECT_EQ(cache.free_blocks(), 64);
}

// A prefix is found as soon as windows have what lies directly before its end.
TEST(KvGroups, APrefixNeedsOfAWindowOnlyWhatIsSeen) {
  KVCacheManager cache({12, 4, {0, 5}}, 64, true);
  const auto chain_of = [&](const std::vector<int32_t>& tokens) {
    PrefixChain chain;
    chain.reserve(16);
    chain.extend(cache.hasher(), make_prefix_root({}, ""), tokens, 4);
    return chain;
  };
  const auto chain = chain_of(std::vector<int32_t>(17, 7));
  std::vector<BlockTable> tables(2);
  for (auto& table : tables) table.reserve(16);
  ASSERT_TRUE(cache.grow(tables, 0, 17));
  cache.publish(chain, tables, 0, 4);
  ASSERT_TRUE(cache.grow(tables, 17, 18));  // the window's blocks before token 13 are free now, and still known
  EXPECT_EQ(tables[1].begin(), 3);
  EXPECT_EQ(cache.find_prefix(chain, 17).blocks, 4);

  // Somebody else takes four blocks: two that never had a name, and the oldest two that have one.
  std::vector<BlockTable> others(2);
  for (auto& table : others) table.reserve(16);
  ASSERT_TRUE(cache.grow(others, 0, 8));
  EXPECT_EQ(cache.find_prefix(chain, 17).blocks, 4) << "the window behind 16 tokens sees 12 to 15";
  EXPECT_EQ(cache.find_prefix(chain, 9).blocks, 0) << "that behind 8 tokens sees 4 to 7";
  std::vector<BlockTable> same(2);
  for (auto& table : same) table.reserve(16);
  cache.adopt_prefix(chain, cache.find_prefix(chain, 17), same);
  EXPECT_EQ(same[0].begin(), 0);
  EXPECT_EQ(same[1].begin(), 3);
  EXPECT_EQ(same[1][3], tables[1][3]);
}

}  // namespace
}  // namespace choral::cache
