#include "base/task_board.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace choral {
namespace {

using Chunks = std::vector<int64_t>;

Chunks all_from(TaskBoard& board, int thread) {
  Chunks taken;
  board.work(thread, [&](int64_t chunk) { taken.push_back(chunk); });
  return taken;
}

// What `thread` takes of a task of two chunks a thread, by the threads whose they are.
std::vector<int> owners(TaskBoard& board, int thread) {
  board.open(2 * board.threads());
  std::vector<int> out;
  for (const int64_t chunk : all_from(board, thread)) {
    const int owner = static_cast<int>(chunk / 2);
    if (out.empty() || out.back() != owner) out.push_back(owner);
  }
  board.close();
  return out;
}

TEST(TaskBoard, AThreadTakesItsOwnShareThenThoseOfItsCacheThenTheRest) {
  TaskBoard board(std::vector<int>{0, 0, 0, 1, 1, 1, 2, 2});
  EXPECT_EQ(owners(board, 0), (std::vector<int>{0, 1, 2, 4, 5, 3, 7, 6}));
  EXPECT_EQ(owners(board, 4), (std::vector<int>{4, 5, 3, 6, 7, 2, 0, 1}));
  EXPECT_EQ(owners(board, 7), (std::vector<int>{7, 6, 2, 0, 1, 5, 3, 4}));
}

// A domain of 20 threads stands in three groups; its groups come before those of the next.
TEST(TaskBoard, LargeDomainsAreSeveralGroupsThatHelpEachOtherFirst) {
  std::vector<int> domains(30, 1);
  std::fill_n(domains.begin(), 20, 0);
  TaskBoard board(domains);
  for (const int thread : {0, 7, 13, 19, 20, 29}) {
    const auto order = owners(board, thread);
    ASSERT_EQ(order.size(), 30U);
    EXPECT_EQ(order.front(), thread);
    const auto is_near = [&](int owner) { return domains[owner] == domains[thread]; };
    EXPECT_TRUE(std::is_partitioned(order.begin(), order.end(), is_near)) << thread;
  }
}

TEST(TaskBoard, DividesFewChunksOverTheThreads) {
  TaskBoard board(std::vector<int>(16));
  board.open(4);  // of the threads 3, 7, 11 and 15
  EXPECT_EQ(all_from(board, 3), (Chunks{0, 1, 3, 2}));
  board.close();
  board.open(0);
  EXPECT_EQ(all_from(board, 0), Chunks{});
  board.close();
}

TEST(TaskBoard, AWorkerComesInOnceAndOnlyWhileATaskIsOpen) {
  TaskBoard board(std::vector<int>(20));
  TaskBoard::Seen seen = 0;
  EXPECT_FALSE(board.has_news(1, seen));
  EXPECT_FALSE(board.join(1, seen));
  board.open(1);
  EXPECT_TRUE(board.has_news(1, seen));
  ASSERT_TRUE(board.join(1, seen));
  board.close();
  EXPECT_FALSE(board.is_left());
  board.leave(1);
  EXPECT_TRUE(board.is_left());
  EXPECT_FALSE(board.has_news(1, seen)) << "its own";
  TaskBoard::Seen late = 0;
  EXPECT_TRUE(board.has_news(19, late));
  EXPECT_FALSE(board.join(19, late)) << "closed";
  EXPECT_TRUE(board.is_left()) << "who finds it closed is not waited for";
  EXPECT_FALSE(board.has_news(19, late)) << "does not look at it again";
  board.open(1);
  ASSERT_TRUE(board.join(19, late));
  EXPECT_FALSE(board.is_left()) << "of the last group";
  board.leave(19);
  EXPECT_TRUE(board.is_left());
  EXPECT_FALSE(board.join(19, late)) << "was there already";
  EXPECT_TRUE(board.has_news(1, seen));
}

// The number of a task begins anew after 2^20 of them: a share that nobody touched since is whole all the same.
TEST(TaskBoard, NumbersMayBeginAnew) {
  TaskBoard board(std::vector<int>(2));
  constexpr int kTasks = (1 << 20) + 3;
  int64_t taken = 0;
  for (int task = 0; task < kTasks; ++task) {
    // Of one chunk, the first share has none: thread 0's is touched by the first task and by the last ones alone.
    const bool is_full = task == 0 || task + 4 >= kTasks;
    board.open(is_full ? 2 : 1);
    board.work(1, [&](int64_t) { ++taken; });
    board.close();
    ASSERT_EQ(taken, is_full ? 2 : 1) << task;
    taken = 0;
  }
}

// Each sleeper that is woken wakes two more, until all have come to a task that stays open.
TEST(TaskBoard, SleepersWakeEachOther) {
  TaskBoard board(std::vector<int>(8));
  std::atomic<int> came{0};
  std::vector<std::thread> workers;
  for (int i = 1; i < board.threads(); ++i) {
    workers.emplace_back([&, i] {
      TaskBoard::Seen seen = 0;
      while (!board.has_news(i, seen)) board.sleep_until_news(seen);
      if (board.join(i, seen)) ++came;
      board.leave(i);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // most sleep by then; the test holds however many do
  board.open(0);
  while (came < 7) std::this_thread::yield();
  board.close();
  for (auto& worker : workers) worker.join();
  EXPECT_TRUE(board.is_left());
}

// Workers that come as a task is closed: none is inside when the caller goes on, and a caller that sleeps because of one that
// was inside for a moment only is woken.
TEST(TaskBoard, NobodyIsInsideATaskThatIsOver) {
  TaskBoard board(std::vector<int>(3));
  std::atomic<bool> stop{false}, lasts{false};
  std::atomic<int> late{0};
  std::vector<std::thread> workers;
  for (int i = 1; i < board.threads(); ++i) {
    workers.emplace_back([&, i] {
      for (TaskBoard::Seen seen = 0; !stop;) {
        if (!board.has_news(i, seen)) {
          std::this_thread::yield();
        } else if (board.join(i, seen)) {
          if (!lasts) ++late;
          board.leave(i);
        }
      }
    });
  }
  for (int task = 0; task < 200'000; ++task) {
    lasts = true;
    board.open(0);
    board.close();
    while (!board.is_left()) board.sleep_until_left();
    lasts = false;
  }
  stop = true;
  for (auto& worker : workers) worker.join();
  EXPECT_EQ(late, 0);
}

}  // namespace
}  // namespace choral
