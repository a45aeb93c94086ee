// The one compute pool. `parallel_for` splits [0, n) into chunks of `grain`; the caller works too and returns when all are done.
// Every thread begins with its own share of the chunks and then helps the others: what one operation wrote, the next one mostly
// reads on the same core.
// Work is divided by output only, so results do not depend on the number of threads (invariant 1).
// A worker joins a task when it gets to it: where somebody else has its CPU (an adapter being loaded, say), the caller does not
// wait for it to come and find that nothing is left. Workers spin for a moment after each task and then sleep. One task at a
// time: a second caller waits, and a body must not call parallel_for itself. No allocation per call.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"

namespace choral {

class ThreadPool {
 public:
  // body(begin, end, thread) with 0 <= thread < size(). A thread takes the chunks of its own share in order and then those of
  // the threads after it.
  using Body = FunctionRef<void(int64_t begin, int64_t end, int thread)>;

  // At least 1; the caller counts as one. resource_exhausted when the system does not give so many.
  static Result<std::unique_ptr<ThreadPool>> make(int threads);
  // The same where threads are no question of the machine: one, or a test's few. Without them the process ends.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }
  // What a body throws (memory that cannot be had) reaches the caller when all threads are out; the rest may be left undone.
  void parallel_for(int64_t n, int64_t grain, Body body);
  // The same unless a task runs already, this thread's own or another's: then false, and nothing was called.
  bool try_parallel_for(int64_t n, int64_t grain, Body body);

  // A thread for each physical core this process may run on (SMT siblings share one multiplier) and has the time of: cpu_share.h.
  static int default_size();

 private:
  struct Range {
    int64_t begin = 0, end = 0;
  };

  ThreadPool() = default;
  Status start(int threads);
  void run_worker(int thread);
  void help(int thread);
  void run_task(int64_t n, int64_t grain, const Body& body);
  void take_chunks(int thread);
  // What thread `thread` owns of [0, n): whole chunks, equal shares as nearly as can be.
  Range own_share(int64_t n, int64_t grain, int thread) const;

  // Held by the caller of the task that runs; what follows is written by it while no task is open and no worker inside.
  std::atomic<bool> busy_{false};
  const Body* body_ = nullptr;
  int64_t grain_ = 1;
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};  // begin of the next chunk that nobody has taken
    int64_t end = 0;
  };
  std::vector<Share> shares_;  // one a thread

  // One word, so that no worker can join a task that the caller is closing: how many workers are inside, whether more may join,
  // and the task's number, by which a worker knows that it was there already. 32 bits are what a futex compares.
  static constexpr uint32_t kInside = (uint32_t{1} << 12) - 1, kOpen = kInside + 1, kNumber = kOpen << 1;
  alignas(64) std::atomic<uint32_t> task_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};  // thrown_ is set
  std::mutex thrown_mutex_;
  std::exception_ptr thrown_;  // the first of a task
  std::vector<std::thread> workers_;
};

}  // namespace choral
