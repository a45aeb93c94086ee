// Sequences that are cut and forked, over a simulated memory: each must find in its blocks what it or its forerunner wrote, and
// nobody writes where another reads or may come to read.
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
  BlockTable table;
  int32_t published = 0;
};

class Memory {
 public:
  explicit Memory(int32_t blocks, bool prefix_caching = true)
      : cache(blocks, kBlockTokens, prefix_caching), kv_(blocks * kBlockTokens) {}

  // Finds the prefix or not, then computes the rest. False: no room, and nothing is left.
  bool begin(Sequence& s, const std::vector<int32_t>& tokens) {
    make_room(s);
    s.chain.extend(cache.hasher(), root_, tokens, kBlockTokens);
    const auto match = cache.find_prefix(s.chain, static_cast<int32_t>(tokens.size()));
    cache.adopt_prefix(s.chain, match, s.table);
    s.published = match.blocks;
    s.tokens.assign(tokens.begin(), tokens.begin() + match.blocks * kBlockTokens);
    if (extend(s, std::span(tokens).subspan(s.tokens.size()))) return true;
    cache.release(s.table);
    return false;
  }
  bool extend(Sequence& s, std::span<const int32_t> more) {
    if (!cache.grow(s.table, static_cast<int64_t>(s.tokens.size() + more.size()))) return false;
    for (const int32_t token : more) {
      const size_t position = s.tokens.size();
      const BlockId block = s.table[static_cast<int32_t>(position / kBlockTokens)];
      RC_ASSERT(cache.ref_count(block) == 1);
      s.tokens.push_back(token);
      kv_at(s, position) = hash(s, position);
    }
    s.chain.extend(cache.hasher(), root_, s.tokens, kBlockTokens);
    const auto full = static_cast<int32_t>(s.tokens.size()) / kBlockTokens;
    cache.publish(s.chain, s.table, s.published, full);
    s.published = full;
    return true;
  }
  void truncate(Sequence& s, size_t count) {
    const int64_t held = cache.truncate(s.table, static_cast<int64_t>(count));
    RC_ASSERT(held <= static_cast<int64_t>(count) && held > static_cast<int64_t>(count) - kBlockTokens);
    RC_ASSERT(s.table.size() == cache.blocks_for(held));
    s.tokens.resize(held);
    s.chain = {};
    s.chain.reserve(kLongest);
    s.chain.extend(cache.hasher(), root_, s.tokens, kBlockTokens);
    s.published = static_cast<int32_t>(held) / kBlockTokens;
  }
  void fork(const Sequence& from, size_t count, Sequence& to) {
    make_room(to);
    const int64_t shared = cache.fork(from.table, static_cast<int64_t>(count), to.table);
    RC_ASSERT(shared == static_cast<int64_t>(count) / kBlockTokens * kBlockTokens);
    to.tokens.assign(from.tokens.begin(), from.tokens.begin() + shared);
    to.published = static_cast<int32_t>(shared) / kBlockTokens;
  }
  void check(const Sequence& s) {
    for (size_t p = 0; p < s.tokens.size(); ++p) RC_ASSERT(kv_at(s, p) == hash(s, p));
  }

  KVCacheManager cache;

 private:
  static void make_room(Sequence& s) {
    s.chain.reserve(kLongest);
    s.table.reserve(kLongest);
  }
  static uint64_t hash(const Sequence& s, size_t position) {
    uint64_t h = 7;
    for (size_t p = 0; p <= position; ++p) h = (h ^ static_cast<uint32_t>(s.tokens[p])) * 0x9E3779B97F4A7C15u;
    return h;
  }
  uint64_t& kv_at(const Sequence& s, size_t position) {
    const auto block = static_cast<size_t>(s.table[static_cast<int32_t>(position / kBlockTokens)]);
    return kv_[block * kBlockTokens + position % kBlockTokens];
  }

  const PrefixRoot root_ = make_prefix_root({}, "");
  std::vector<uint64_t> kv_;
};

std::vector<int32_t> random_tokens(int32_t least, int32_t most) {
  const auto count = static_cast<size_t>(*rc::gen::inRange(least, most + 1));
  return *rc::gen::container<std::vector<int32_t>>(count, rc::gen::inRange(0, 2));
}

RC_GTEST_PROP(KVCacheFork, SequencesReadWhatTheyWrote, ()) {
  const int32_t blocks = *rc::gen::inRange(2, 14);
  Memory memory(blocks, *rc::gen::arbitrary<bool>());
  std::vector<Sequence> live;
  const int steps = *rc::gen::inRange(0, 60);
  for (int step = 0; step < steps; ++step) {
    const int what = live.empty() ? 0 : *rc::gen::inRange(0, 6);
    const size_t which = live.empty() ? 0 : *rc::gen::inRange<size_t>(0, live.size());
    if (what < 2) {
      Sequence s;
      if (memory.begin(s, random_tokens(1, 12))) live.push_back(std::move(s));
    } else if (what == 2) {
      memory.cache.release(live[which].table);
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
  for (auto& s : live) memory.cache.release(s.table);
  RC_ASSERT(memory.cache.free_blocks() == blocks);
}

TEST(KVCacheFork, SharesWholeBlocksOnly) {
  Memory memory(8);
  Sequence first, fork;
  ASSERT_TRUE(memory.begin(first, std::vector<int32_t>(10, 1)));
  memory.fork(first, 10, fork);
  ASSERT_EQ(fork.table.size(), 2);
  EXPECT_EQ(fork.table[1], first.table[1]);
  EXPECT_EQ(memory.cache.ref_count(first.table[1]), 2);
  EXPECT_EQ(memory.cache.ref_count(first.table[2]), 1);
  EXPECT_EQ(memory.cache.free_blocks(), 5);
}

TEST(KVCacheFork, ACutThroughASharedBlockGivesItUp) {
  KVCacheManager cache(8, kBlockTokens, /*enable_prefix_caching=*/false);
  BlockTable table, fork;
  table.reserve(8);
  fork.reserve(8);
  ASSERT_TRUE(cache.grow(table, 10));
  EXPECT_EQ(cache.fork(table, 8, fork), 8);
  EXPECT_EQ(cache.truncate(table, 6), 4) << "the fork reads tokens 6 and 7";
  EXPECT_EQ(cache.ref_count(fork[1]), 1);
  EXPECT_EQ(cache.truncate(fork, 6), 6) << "now nobody else does";
  EXPECT_EQ(fork.size(), 2);
  EXPECT_EQ(cache.truncate(fork, 100), 8);
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

}  // namespace
}  // namespace choral::cache
