// Sequences that are cut and forked, over a simulated memory: each must find in its blocks what it or its forerunner wrote, and
// nobody writes where another reads or may come to read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "cache/kv_cache_manager.h"

namespace choral::cache {
namespace {

constexpr int32_t kBlockTokens = 4;
constexpr int32_t kLongest = 24;

// A cut through a shared block that is written then takes four steps of the right kind. RC_PARAMS of the caller wins.
[[maybe_unused]] const int kParams = setenv("RC_PARAMS", "max_success=2000", 0);

struct Sequence {
  std::vector<int32_t> tokens;  // all computed
  PrefixChain chain;
  std::vector<BlockTable> tables;
  int32_t published = 0;
  size_t grown_at = 0;  // tokens computed before the last grow()
};

class Memory {
 public:
  explicit Memory(int32_t blocks, bool prefix_caching = true, std::vector<int32_t> windows = {0})
      : cache({blocks, kBlockTokens, windows}, kLongest, prefix_caching), windows_(windows), kv_(blocks * kBlockTokens) {}

  // Finds the prefix or not, then computes the rest. False: no room, and nothing is left.
  bool begin(Sequence& s, const std::vector<int32_t>& tokens) {
    make_room(s);
    s.chain.extend(cache.hasher(), root_, tokens, kBlockTokens);
    const auto match = cache.find_prefix(s.chain, static_cast<int32_t>(tokens.size()));
    cache.adopt_prefix(s.chain, match, s.tables);
    s.published = match.blocks;
    s.tokens.assign(tokens.begin(), tokens.begin() + match.blocks * kBlockTokens);
    if (extend(s, std::span(tokens).subspan(s.tokens.size()))) return true;
    cache.release(s.tables);
    return false;
  }
  bool extend(Sequence& s, std::span<const int32_t> more) {
    s.grown_at = s.tokens.size();
    if (!cache.grow(s.tables, std::ssize(s.tokens), static_cast<int64_t>(s.tokens.size() + more.size()))) return false;
    for (const int32_t token : more) {
      const size_t position = s.tokens.size();
      s.tokens.push_back(token);
      for (size_t group = 0; group < windows_.size(); ++group) {
        RC_ASSERT(cache.ref_count(block_at(s, group, position)) == 1);
        kv_at(s, group, position) = hash(s, group, position);
      }
    }
    s.chain.extend(cache.hasher(), root_, s.tokens, kBlockTokens);
    const auto full = static_cast<int32_t>(s.tokens.size()) / kBlockTokens;
    cache.publish(s.chain, s.tables, s.published, full);
    s.published = full;
    return true;
  }
  void truncate(Sequence& s, size_t count) {
    const int64_t held = cache.truncate(s.tables, static_cast<int64_t>(count));
    RC_ASSERT(held <= static_cast<int64_t>(count));
    const bool may_lose_window = count < s.grown_at + kBlockTokens && windows_ != std::vector<int32_t>{0};
    RC_ASSERT(held > static_cast<int64_t>(count) - kBlockTokens || (may_lose_window && held == 0));
    for (const auto& table : s.tables) RC_ASSERT(table.size() == cache.blocks_for(held));
    s.tokens.resize(held);
    s.chain = {};
    s.chain.reserve(kLongest);
    s.chain.extend(cache.hasher(), root_, s.tokens, kBlockTokens);
    s.published = static_cast<int32_t>(held) / kBlockTokens;
  }
  void fork(const Sequence& from, size_t count, Sequence& to) {
    make_room(to);
    const int64_t shared = cache.fork(from.tables, static_cast<int64_t>(count), to.tables);
    const int64_t whole = static_cast<int64_t>(count) / kBlockTokens * kBlockTokens;
    RC_ASSERT(shared == whole || (shared < whole && windows_ != std::vector<int32_t>{0}));
    to.tokens.assign(from.tokens.begin(), from.tokens.begin() + shared);
    to.published = static_cast<int32_t>(shared) / kBlockTokens;
    to.grown_at = to.tokens.size();
  }
  // What a next token would see.
  void check(const Sequence& s) {
    for (size_t group = 0; group < windows_.size(); ++group) {
      const auto window = static_cast<size_t>(windows_[group]);
      for (size_t p = window == 0 || window > s.tokens.size() ? 0 : s.tokens.size() - window + 1; p < s.tokens.size(); ++p) {
        RC_ASSERT(kv_at(s, group, p) == hash(s, group, p));
      }
    }
  }

  KVCacheManager cache;

 private:
  void make_room(Sequence& s) const {
    s.chain.reserve(kLongest);
    s.tables.resize(windows_.size());
    for (auto& table : s.tables) table.reserve(kLongest);
  }
  static uint64_t hash(const Sequence& s, size_t group, size_t position) {
    uint64_t h = 7 + group;
    for (size_t p = 0; p <= position; ++p) h = (h ^ static_cast<uint32_t>(s.tokens[p])) * 0x9E3779B97F4A7C15u;
    return h;
  }
  static BlockId block_at(const Sequence& s, size_t group, size_t position) {
    return s.tables[group][static_cast<int32_t>(position / kBlockTokens)];
  }
  uint64_t& kv_at(const Sequence& s, size_t group, size_t position) {
    return kv_.at(static_cast<size_t>(block_at(s, group, position)) * kBlockTokens + position % kBlockTokens);
  }

  const PrefixRoot root_ = make_prefix_root({}, "");
  const std::vector<int32_t> windows_;
  std::vector<uint64_t> kv_;
};

std::vector<int32_t> random_tokens(int32_t least, int32_t most) {
  const auto count = static_cast<size_t>(*rc::gen::inRange(least, most + 1));
  return *rc::gen::container<std::vector<int32_t>>(count, rc::gen::inRange(0, 2));
}

RC_GTEST_PROP(KVCacheFork, SequencesReadWhatTheyWrote, ()) {
  const int32_t blocks = *rc::gen::inRange(2, 14);
  const int32_t window = *rc::gen::inRange(1, 12);
  const auto windows =
      *rc::gen::elementOf(std::vector<std::vector<int32_t>>{{0}, {window}, {0, window}, {window, 0, 2 * window}});
  Memory memory(blocks * static_cast<int32_t>(windows.size()), *rc::gen::arbitrary<bool>(), windows);
  std::vector<Sequence> live;
  const int steps = *rc::gen::inRange(0, 60);
  for (int step = 0; step < steps; ++step) {
    const int what = live.empty() ? 0 : *rc::gen::inRange(0, 6);
    const size_t which = live.empty() ? 0 : *rc::gen::inRange<size_t>(0, live.size());
    if (what < 2) {
      Sequence s;
      if (memory.begin(s, random_tokens(1, 12))) live.push_back(std::move(s));
    } else if (what == 2) {
      memory.cache.release(live[which].tables);
      live.erase(live.begin() + static_cast<ptrdiff_t>(which));
    } else if (what == 3) {
      const auto room = kLongest - static_cast<int32_t>(live[which].tokens.size());
      (void)memory.extend(live[which], random_tokens(0, std::min(room, 6)));
    } else {
      const auto count = *rc::gen::inRange<size_t>(0, live[which].tokens.size() + 1);
      if (what == 4) {
        memory.truncate(live[which], count);
      } else {
        Sequence s;
        memory.fork(live[which], count, s);
        live.push_back(std::move(s));
      }
    }
    for (const auto& s : live) memory.check(s);
  }
  for (auto& s : live) memory.cache.release(s.tables);
  RC_ASSERT(memory.cache.free_blocks() == memory.cache.block_count());
}

TEST(KVCacheFork, SharesWholeBlocksOnly) {
  Memory memory(8);
  Sequence first, fork;
  ASSERT_TRUE(memory.begin(first, std::vector<int32_t>(10, 1)));
  memory.fork(first, 10, fork);
  ASSERT_EQ(fork.tables[0].size(), 2);
  EXPECT_EQ(fork.tables[0][1], first.tables[0][1]);
  EXPECT_EQ(memory.cache.ref_count(first.tables[0][1]), 2);
  EXPECT_EQ(memory.cache.ref_count(first.tables[0][2]), 1);
  EXPECT_EQ(memory.cache.free_blocks(), 5);
}

TEST(KVCacheFork, ACutThroughASharedBlockGivesItUp) {
  KVCacheManager cache({8, kBlockTokens}, kLongest, /*enable_prefix_caching=*/false);
  std::vector<BlockTable> tables(1), fork(1);
  tables[0].reserve(8);
  fork[0].reserve(8);
  ASSERT_TRUE(cache.grow(tables, 0, 10));
  EXPECT_EQ(cache.fork(tables, 8, fork), 8);
  EXPECT_EQ(cache.truncate(tables, 6), 4) << "the fork reads tokens 6 and 7";
  EXPECT_EQ(cache.ref_count(fork[0][1]), 1);
  EXPECT_EQ(cache.truncate(fork, 6), 6) << "now nobody else does";
  EXPECT_EQ(fork[0].size(), 2);
  EXPECT_EQ(cache.truncate(fork, 100), 8);
}

TEST(KVCacheFork, ACutBehindAWindowThatIsGoneGivesUpAll) {
  Memory memory(8, false, {0, 4});
  Sequence s;
  ASSERT_TRUE(memory.begin(s, std::vector<int32_t>(14, 1)));
  ASSERT_TRUE(memory.extend(s, std::vector<int32_t>(2, 1)));  // the tokens before 11 are seen no more
  EXPECT_EQ(s.tables[1].begin(), 2);
  EXPECT_EQ(memory.cache.truncate(s.tables, 14), 14);
  EXPECT_EQ(memory.cache.truncate(s.tables, 9), 0) << "token 8 sees 5 to 7";
  EXPECT_EQ(memory.cache.free_blocks(), 8);
}

TEST(BlockTable, TellsWhereACopyOfItIsOutOfDate) {
  BlockTable table;
  table.reserve(4);
  table.push(5);
  EXPECT_EQ(table.unchanged(), 0);
  table.mark_read();
  table.push(6);
  EXPECT_EQ(table.unchanged(), 1);
  table.mark_read();
  table.truncate(1);
  table.push(7);
  EXPECT_EQ(table.unchanged(), 1);
  table.mark_read();
  EXPECT_EQ(table.unchanged(), 2);
  table.clear();
  table.push(5);
  EXPECT_EQ(table.unchanged(), 0);
  EXPECT_DEATH(table.truncate(2), "cut inside");
}

TEST(BlockTable, HoldsNothingBeforeItsBegin) {
  BlockTable table;
  table.reserve(4);
  for (const BlockId block : {5, 6, 7}) table.push(block);
  table.mark_read();
  table.begin_at(2);
  EXPECT_THAT(table.ids(), testing::ElementsAre(kNoBlock, kNoBlock, 7));
  EXPECT_EQ(table.unchanged(), 3) << "a copy's ids there are not read";
  table.truncate(1);
  EXPECT_EQ(table.begin(), 1);
  table.clear();
  table.begin_at(1);
  EXPECT_THAT(table.ids(), testing::ElementsAre(kNoBlock));
  EXPECT_EQ(table.unchanged(), 0);
}

}  // namespace
}  // namespace choral::cache
