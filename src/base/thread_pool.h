// The one compute pool. `parallel_for` splits [0, n) into chunks of `grain`; the caller works too and returns when all are done.
// Work is divided by output only, so results do not depend on the number of threads (invariant 1).
// Workers spin for a moment after each task and then sleep. One caller at a time; no allocation per call.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace choral {

class ThreadPool {
 public:
  // body(begin, end, thread) with 0 <= thread < size(); chunks are taken in order by whoever is free.
  using Body = FunctionRef<void(int64_t begin, int64_t end, int thread)>;

  explicit ThreadPool(int threads);  // at least 1; the caller counts as one
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }
  void parallel_for(int64_t n, int64_t grain, Body body);

  // One thread per physical core this process may run on (SMT siblings share one multiplier), at least 1, at most its CPUs.
  static int default_size();

 private:
  void run_worker(int thread);
  void take_chunks(int thread);

  // Written by the caller before `generation_` is raised, read by workers after they see it raised.
  const Body* body_ = nullptr;
  int64_t n_ = 0;
  int64_t grain_ = 1;

  alignas(64) std::atomic<int64_t> next_{0};         // first row of the next free chunk
  alignas(64) std::atomic<uint32_t> generation_{0};  // raised for every task
  alignas(64) std::atomic<int> busy_{0};             // workers that have not finished the current task
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace choral
