#include "cache/block_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <vector>

namespace choral::cache {
namespace {

TEST(BlockPool, GivesEachBlockOnce) {
  BlockPool pool(3, 32);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 2);
  EXPECT_EQ(pool.free_count(), 0);
}

TEST(BlockPool, BlocksWithoutContentGoFirstThenTheOldestContent) {
  BlockPool pool(3, 32);
  for (int i = 0; i < 3; ++i) pool.take();
  pool.unref(2, true);
  pool.unref(0, true);
  pool.unref(1, false);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 2);
  EXPECT_EQ(pool.take(), 0);
}

TEST(BlockPool, UsingContentAgainMakesItRecent) {
  BlockPool pool(2, 32);
  pool.take();
  pool.take();
  pool.unref(0, true);
  pool.unref(1, true);
  pool.ref(0);
  EXPECT_EQ(pool.free_count(), 1);
  pool.unref(0, true);
  EXPECT_EQ(pool.take(), 1);
}

TEST(BlockPool, SharedBlockIsFreeOnlyAfterItsLastHolder) {
  BlockPool pool(1, 32);
  const BlockId block = pool.take();
  pool.ref(block);
  pool.unref(block, false);
  EXPECT_EQ(pool.free_count(), 0);
  pool.unref(block, false);
  EXPECT_EQ(pool.free_count(), 1);
}

TEST(BlockPoolDeathTest, BrokenPromisesEndTheProcess) {
  BlockPool pool(1, 32);
  EXPECT_DEATH(pool.unref(0, false), "released again");
  EXPECT_DEATH(pool.ref(1), "out of range");
  pool.take();
  EXPECT_DEATH(pool.take(), "no free KV block");
}

// Against the obvious model: a deque of free ids and a vector of counts.
RC_GTEST_PROP(BlockPool, BehavesAsADequeOfFreeBlocks, ()) {
  const int32_t count = *rc::gen::inRange(1, 9);
  BlockPool pool(count, 32);
  std::deque<BlockId> free;
  for (BlockId block = 0; block < count; ++block) free.push_back(block);
  std::vector<int32_t> refs(count, 0);
  const int steps = *rc::gen::inRange(0, 100);
  for (int step = 0; step < steps; ++step) {
    const int action = *rc::gen::inRange(0, 4);
    const BlockId block = *rc::gen::inRange(0, count);
    int32_t& block_refs = refs[block];
    if (action == 0 && !free.empty()) {
      RC_ASSERT(pool.take() == free.front());
      refs[free.front()] = 1;
      free.pop_front();
    } else if (action == 1) {
      pool.ref(block);
      if (block_refs++ == 0) std::erase(free, block);
    } else if (action >= 2 && block_refs > 0) {
      pool.unref(block, action == 2);
      if (--block_refs == 0) action == 2 ? free.push_back(block) : free.push_front(block);
    }
    RC_ASSERT(pool.free_count() == static_cast<int32_t>(free.size()));
    for (BlockId b = 0; b < count; ++b) RC_ASSERT(pool.ref_count(b) == refs[b]);
  }
}

}  // namespace
}  // namespace choral::cache
