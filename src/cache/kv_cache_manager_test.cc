#include "cache/kv_cache_manager.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <vector>

namespace choral::cache {
namespace {

constexpr int32_t kBlockTokens = 4;
constexpr int32_t kStepTokens = 64;

struct Sequence {
  std::vector<int32_t> tokens;
  PrefixChain chain;
  std::vector<BlockTable> tables = std::vector<BlockTable>(1);
  int32_t found = 0;  // blocks adopted
};

// What the scheduler does at admission; `capacity` tokens of room.
Sequence begin(KVCacheManager& cache, const std::vector<int32_t>& tokens, const char* salt = "", int32_t capacity = 64) {
  Sequence sequence;
  sequence.tokens = tokens;
  sequence.chain.reserve(capacity);
  sequence.tables[0].reserve(capacity);
  sequence.chain.extend(cache.hasher(), make_prefix_root({}, salt), tokens, cache.block_tokens());
  const PrefixMatch match = cache.find_prefix(sequence.chain, static_cast<int32_t>(tokens.size()));
  cache.adopt_prefix(sequence.chain, match, sequence.tables);
  sequence.found = match.blocks;
  return sequence;
}

void compute(KVCacheManager& cache, Sequence& sequence) {
  ASSERT_TRUE(cache.grow(sequence.tables, 0, std::ssize(sequence.tokens)));
  cache.publish(sequence.chain, sequence.tables, sequence.found, static_cast<int32_t>(sequence.tokens.size()) / kBlockTokens);
}

std::vector<int32_t> repeat(int32_t token, size_t count) { return std::vector<int32_t>(count, token); }

TEST(KVCacheManager, SharesPublishedBlocksButNeverTheWholePrompt) {
  KVCacheManager cache({8, kBlockTokens}, kStepTokens, true);
  Sequence first = begin(cache, repeat(7, 8));
  EXPECT_EQ(first.found, 0);
  compute(cache, first);
  Sequence same = begin(cache, repeat(7, 8));
  EXPECT_EQ(same.found, 1);  // both blocks are cached, but the last token must be computed
  Sequence longer = begin(cache, repeat(7, 9));
  EXPECT_EQ(longer.found, 2);
  EXPECT_EQ(longer.tables[0][0], first.tables[0][0]);
  EXPECT_EQ(longer.tables[0][1], first.tables[0][1]);
  EXPECT_EQ(cache.ref_count(first.tables[0][0]), 3);
  EXPECT_EQ(cache.ref_count(first.tables[0][1]), 2);
}

TEST(KVCacheManager, UnpublishedBlocksAreNotFound) {
  KVCacheManager cache({8, kBlockTokens}, kStepTokens, true);
  Sequence first = begin(cache, repeat(7, 12));
  ASSERT_TRUE(cache.grow(first.tables, 0, 12));
  EXPECT_EQ(begin(cache, repeat(7, 12)).found, 0);
  cache.publish(first.chain, first.tables, 0, 1);
  EXPECT_EQ(begin(cache, repeat(7, 12)).found, 1);
}

TEST(KVCacheManager, AnotherRootFindsNothing) {
  KVCacheManager cache({8, kBlockTokens}, kStepTokens, true);
  Sequence first = begin(cache, repeat(7, 8), "tenant a");
  compute(cache, first);
  EXPECT_EQ(begin(cache, repeat(7, 9), "tenant b").found, 0);
  EXPECT_EQ(begin(cache, repeat(7, 9), "tenant a").found, 2);
}

TEST(KVCacheManager, DisabledSharesNothing) {
  KVCacheManager cache({8, kBlockTokens}, kStepTokens, false);
  Sequence first = begin(cache, repeat(7, 8));
  compute(cache, first);
  EXPECT_EQ(cache.cached_blocks(), 0);
  EXPECT_EQ(begin(cache, repeat(7, 9)).found, 0);
}

TEST(KVCacheManager, ReleasedContentServesUntilItsMemoryIsTaken) {
  KVCacheManager cache({3, kBlockTokens}, kStepTokens, true);
  Sequence first = begin(cache, repeat(7, 9));
  compute(cache, first);
  cache.release(first.tables);
  EXPECT_EQ(cache.free_blocks(), 3);
  EXPECT_EQ(cache.cached_blocks(), 2);
  Sequence again = begin(cache, repeat(7, 9));
  EXPECT_EQ(again.found, 2);
  EXPECT_EQ(cache.free_blocks(), 1);
}

TEST(KVCacheManager, EvictsUncachedFirstThenTheSuffixOfTheOldestSequence) {
  KVCacheManager cache({5, kBlockTokens}, kStepTokens, true);
  Sequence old_one = begin(cache, repeat(7, 9));  // two cached blocks and one partial
  compute(cache, old_one);
  const BlockId old_prefix = old_one.tables[0][0], old_suffix = old_one.tables[0][1], partial = old_one.tables[0][2];
  Sequence young = begin(cache, repeat(8, 8));
  compute(cache, young);
  const BlockId young_prefix = young.tables[0][0], young_suffix = young.tables[0][1];
  cache.release(old_one.tables);
  cache.release(young.tables);

  Sequence next = begin(cache, repeat(9, 20));
  ASSERT_TRUE(cache.grow(next.tables, 0, 20));
  const std::vector<BlockId> order(next.tables[0].ids().begin(), next.tables[0].ids().end());
  EXPECT_EQ(order, (std::vector<BlockId>{partial, old_suffix, old_prefix, young_suffix, young_prefix}));
  EXPECT_EQ(cache.stats().evicted_blocks, 4);
  EXPECT_EQ(cache.cached_blocks(), 0);
}

TEST(KVCacheManager, GrowTakesAllOrNothing) {
  KVCacheManager cache({3, kBlockTokens}, kStepTokens, true);
  Sequence sequence = begin(cache, repeat(7, 5));
  ASSERT_TRUE(cache.grow(sequence.tables, 0, 5));
  EXPECT_FALSE(cache.grow(sequence.tables, 0, 13));
  EXPECT_EQ(sequence.tables[0].size(), 2);
  EXPECT_TRUE(cache.grow(sequence.tables, 0, 8));
  EXPECT_EQ(sequence.tables[0].size(), 2);  // the room was there already
  EXPECT_TRUE(cache.grow(sequence.tables, 0, 12));
}

TEST(KVCacheManager, DuplicatesKeepTheFirst) {
  KVCacheManager cache({6, kBlockTokens}, kStepTokens, true);
  Sequence first = begin(cache, repeat(7, 9)), second = begin(cache, repeat(7, 9));
  compute(cache, first);
  compute(cache, second);
  EXPECT_EQ(cache.cached_blocks(), 2);
  cache.release(second.tables);  // its copies have no key: they are plain free blocks
  Sequence third = begin(cache, repeat(7, 9));
  EXPECT_EQ(third.tables[0][0], first.tables[0][0]);
}

TEST(KVCacheManager, MatchTellsHowManyFoundBlocksAreFree) {
  KVCacheManager cache({8, kBlockTokens}, kStepTokens, true);
  Sequence first = begin(cache, repeat(7, 9));
  compute(cache, first);
  cache.release(first.tables);
  Sequence holder = begin(cache, repeat(7, 5));  // holds the first block
  const PrefixMatch match = cache.find_prefix(first.chain, 9);
  EXPECT_EQ(match.blocks, 2);
  EXPECT_EQ(match.free_blocks, 1);
}

// The obvious model of the cache: contents are token strings, free blocks a list in order of eviction.
struct NaiveCache {
  struct Block {
    int32_t refs = 0;
    std::vector<int32_t> content;  // all tokens up to its end; empty: none
  };
  std::vector<Block> blocks;
  std::list<BlockId> free;

  explicit NaiveCache(int32_t count) : blocks(count) {
    for (BlockId block = 0; block < count; ++block) free.push_back(block);
  }
  Block& at(BlockId block) { return blocks[block]; }
  static std::vector<int32_t> upto(const std::vector<int32_t>& tokens, size_t block) {
    return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>((block + 1) * kBlockTokens)};
  }
  BlockId find(const std::vector<int32_t>& content) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i].content == content) return static_cast<BlockId>(i);
    }
    return kNoBlock;
  }
  std::vector<BlockId> begin(const std::vector<int32_t>& tokens) {
    std::vector<BlockId> table;
    for (size_t i = 0; (i + 1) * kBlockTokens < tokens.size(); ++i) {
      const BlockId block = find(upto(tokens, i));
      if (block == kNoBlock) break;
      if (at(block).refs++ == 0) free.remove(block);
      table.push_back(block);
    }
    return table;
  }
  bool grow(std::vector<BlockId>& table, size_t tokens) {
    const size_t wanted = (tokens + kBlockTokens - 1) / kBlockTokens;
    if (wanted > table.size() + free.size()) return false;
    while (table.size() < wanted) {
      table.push_back(free.front());
      free.pop_front();
      at(table.back()) = {1, {}};
    }
    return true;
  }
  void publish(const std::vector<BlockId>& table, const std::vector<int32_t>& tokens) {
    for (size_t i = 0; (i + 1) * kBlockTokens <= tokens.size(); ++i) {
      if (find(upto(tokens, i)) == kNoBlock) at(table[i]).content = upto(tokens, i);
    }
  }
  void release(const std::vector<BlockId>& table) {
    for (auto it = table.rbegin(); it != table.rend(); ++it) {
      if (--at(*it).refs > 0) continue;
      at(*it).content.empty() ? free.push_front(*it) : free.push_back(*it);
    }
  }
};

RC_GTEST_PROP(KVCacheManager, EvictsAndSharesAsTheNaiveModel, ()) {
  const int32_t count = *rc::gen::inRange(2, 12);
  KVCacheManager cache({count, kBlockTokens}, kStepTokens, true);
  NaiveCache model(count);
  struct Pair {
    Sequence sequence;
    std::vector<BlockId> table;
  };
  std::vector<Pair> live;
  const int steps = *rc::gen::inRange(0, 80);
  for (int step = 0; step < steps; ++step) {
    if (live.empty() || *rc::gen::inRange(0, 5) > 1) {
      // Two-letter alphabet by block, so that prefixes are often shared.
      std::vector<int32_t> tokens;
      const auto letters = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 2));
      for (const int letter : letters) {
        if (tokens.size() < 20) tokens.insert(tokens.end(), kBlockTokens, letter);
      }
      tokens.resize(tokens.size() + static_cast<size_t>(*rc::gen::inRange(1, kBlockTokens + 1)), 5);
      Pair pair{begin(cache, tokens), model.begin(tokens)};
      const bool grown = cache.grow(pair.sequence.tables, 0, std::ssize(tokens));
      RC_ASSERT(grown == model.grow(pair.table, tokens.size()));
      if (grown) {
        cache.publish(pair.sequence.chain, pair.sequence.tables, pair.sequence.found,
                      static_cast<int32_t>(tokens.size()) / kBlockTokens);
        model.publish(pair.table, tokens);
        live.push_back(std::move(pair));
      } else {
        cache.release(pair.sequence.tables);
        model.release(pair.table);
      }
    } else {
      const size_t which = *rc::gen::inRange<size_t>(0, live.size());
      cache.release(live[which].sequence.tables);
      model.release(live[which].table);
      live.erase(live.begin() + static_cast<ptrdiff_t>(which));
    }
    RC_ASSERT(cache.free_blocks() == static_cast<int32_t>(model.free.size()));
    for (BlockId block = 0; block < count; ++block) RC_ASSERT(cache.ref_count(block) == model.at(block).refs);
    for (const Pair& pair : live) RC_ASSERT(std::ranges::equal(pair.sequence.tables[0].ids(), pair.table));
  }
  for (Pair& pair : live) cache.release(pair.sequence.tables);
  RC_ASSERT(cache.free_blocks() == count);
}

}  // namespace
}  // namespace choral::cache
