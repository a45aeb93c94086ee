#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace choral {
namespace {

TEST(ThreadPool, EveryIndexOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const int64_t n : {0, 1, 2, 63, 64, 1000}) {
      for (const int64_t grain : {1, 7, 2000}) {
        std::vector<std::atomic<int>> seen(n);
        pool.parallel_for(n, grain, [&](int64_t begin, int64_t end, int thread) {
          EXPECT_GE(thread, 0);
          EXPECT_LT(thread, threads);
          if (threads > 1) {
            EXPECT_LE(end - begin, grain);
          }
          for (int64_t i = begin; i < end; ++i) seen[i].fetch_add(1);
        });
        for (auto& count : seen) ASSERT_EQ(count.load(), 1);
      }
    }
  }
}

TEST(ThreadPool, WritesAreVisibleAfterwards) {
  ThreadPool pool(3);
  std::vector<int64_t> values(1000);
  for (int round = 0; round < 500; ++round) {
    pool.parallel_for(1000, 10, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) values[i] += i;
    });
  }
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(values[i], 500 * i);
}

// More threads than CPUs and tasks of a moment: most workers come when a task is closed, or when the next one is open.
TEST(ThreadPool, LateWorkersDoNotTouchATaskThatIsOver) {
  ThreadPool pool(9);
  for (int64_t round = 1; round <= 20'000; ++round) {
    std::array<int64_t, 3> own{};
    pool.parallel_for(3, 1, [&own, round](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) own[i] += round;
    });
    for (const int64_t value : own) ASSERT_EQ(value, round);
  }
}

TEST(ThreadPool, WhatABodyThrowsReachesTheCaller) {
  const auto pool = ThreadPool::make(4);
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  for (int64_t round = 0; round < 1000; ++round) {
    const auto fail_at = [&](int64_t row) {
      (*pool)->parallel_for(100, 1, [row](int64_t begin, int64_t, int) {
        if (begin == row) static_cast<void>(std::vector<char>().at(0));
      });
    };
    EXPECT_THROW(fail_at(round % 100), std::out_of_range);
    fail_at(-1);  // nothing of it is left
  }
}

}  // namespace
}  // namespace choral
