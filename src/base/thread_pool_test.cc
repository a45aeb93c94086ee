#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/cpu_list.h"
#include "base/cpu_share.h"
#include "base/thread_plan.h"

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

// Several caches, of different sizes, and more threads than CPUs.
TEST(ThreadPool, EveryIndexOnceOnManyThreads) {
  ThreadPlan plan;
  for (const int size : {9, 1, 20, 8}) {
    for (int i = 0; i < size; ++i) plan.seats.push_back({.domain = size, .cpus = {}});
  }
  const auto pool = ThreadPool::make(plan);
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  EXPECT_EQ((*pool)->size(), 38);
  EXPECT_EQ((*pool)->plan().seats.size(), 38U);
  for (const int64_t n : {2, 37, 38, 500}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::atomic<int>> seen(n);
      (*pool)->parallel_for(n, 1, [&](int64_t begin, int64_t, int) { seen[begin].fetch_add(1); });
      for (auto& count : seen) ASSERT_EQ(count.load(), 1);
    }
  }
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

TEST(ThreadPool, WorkersStayAtTheirSeats) {
  ThreadPlan plan = ThreadPlan::anywhere(3);
  plan.seats[1].cpus = {allowed_cpus().back()};
  plan.seats[2].cpus = {kMostCpus - 1};  // which no machine of a test has: no reason to fail
  const auto pool = ThreadPool::make(plan);
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  std::array<std::vector<int>, 3> cpus;
  for (int round = 0; round < 10'000 && (cpus[1].empty() || cpus[2].empty()); ++round) {
    (*pool)->parallel_for(300, 1, [&](int64_t, int64_t, int thread) { cpus[thread] = allowed_cpus(); });
  }
  EXPECT_EQ(cpus[1], plan.seats[1].cpus);
  EXPECT_EQ(cpus[2], allowed_cpus());
}

TEST(ThreadPool, TryIsRefusedWhileATaskRuns) {
  ThreadPool one(1), three(3);
  for (ThreadPool* pool : {&one, &three}) {
    for (const int64_t grain : {1, 100}) {
      std::atomic<int> refused{0}, chunks{0};
      EXPECT_TRUE(pool->try_parallel_for(10, grain, [&](int64_t, int64_t, int) {
        ++chunks;
        if (!pool->try_parallel_for(10, grain, [](int64_t, int64_t, int) { FAIL(); })) ++refused;
      }));
      EXPECT_EQ(refused, chunks);
    }
  }
}

TEST(ThreadPool, TheOwnerComputesAloneBesideAGuest) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::atomic<bool> guest_is_in{false}, owner_is_done{false};
    std::thread guest([&] {
      EXPECT_TRUE(pool.try_parallel_for(4, 1, [&](int64_t, int64_t, int) {
        guest_is_in = true;
        while (!owner_is_done) std::this_thread::yield();
      }));
    });
    while (!guest_is_in) std::this_thread::yield();
    std::vector<std::array<int64_t, 3>> calls;
    pool.parallel_for(10, 4, [&](int64_t begin, int64_t end, int thread) { calls.push_back({begin, end, thread}); });
    owner_is_done = true;
    guest.join();
    EXPECT_EQ(calls, (std::vector<std::array<int64_t, 3>>{{0, 4, 0}, {4, 8, 0}, {8, 10, 0}}));
  }
}

TEST(ThreadPoolDeathTest, ABodyThatCallsEndsTheProcess) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto call_again = [](int threads, int64_t n) {
    ThreadPool pool(threads);
    pool.parallel_for(n, 1, [&](int64_t, int64_t, int) { pool.parallel_for(1, 1, [](int64_t, int64_t, int) {}); });
  };
  EXPECT_DEATH(call_again(2, 10), "while a task of this pool runs");
  EXPECT_DEATH(call_again(2, 1), "while a task of this pool runs") << "what one thread does alone is a task too";
  EXPECT_DEATH(call_again(1, 1), "while a task of this pool runs");
}

TEST(ThreadPoolDeathTest, ASecondCallerEndsTheProcess) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.parallel_for(2, 1, [&](int64_t, int64_t, int) {
          std::thread([&] { pool.parallel_for(2, 1, [](int64_t, int64_t, int) {}); }).join();
        });
      },
      "or a second thread");
}

}  // namespace
}  // namespace choral
