#include "base/thread_pool.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/cpu_share.h"
#include "base/thread.h"

namespace choral {
namespace {

// About 100 µs: longer than the gap between two kernels of a step, shorter than anyone notices an idle core.
constexpr int kSpins = 4000;

inline void relax() { __builtin_ia32_pause(); }

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::make(int threads) {
  std::unique_ptr<ThreadPool> pool(new ThreadPool());
  CHORAL_RETURN_IF_ERROR(pool->start(threads));
  return pool;
}

ThreadPool::ThreadPool(int threads) {
  const Status started = start(threads);
  CHORAL_CHECK(started.ok(), started.message());
}

Status ThreadPool::start(int threads) {
  CHORAL_CHECK(threads <= static_cast<int>(kInside), "more threads than a task can count");
  shares_ = std::vector<Share>(std::max(threads, 1));
  workers_.reserve(shares_.size());
  for (int i = 1; i < threads; ++i) {
    CHORAL_TRY(auto worker, start_thread(fmt::format("compute thread {} of {}", i + 1, threads), [this, i] { run_worker(i); }));
    workers_.push_back(std::move(worker));
  }
  return {};
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  task_.fetch_add(kNumber);
  task_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(int64_t n, int64_t grain, Body body) {
  CHORAL_DCHECK(grain > 0, "a chunk has at least one row");
  if (n <= 0) return;
  if (workers_.empty() || n <= grain) return body(0, n, 0);
  while (busy_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  run_task(n, grain, body);
}

bool ThreadPool::try_parallel_for(int64_t n, int64_t grain, Body body) {
  CHORAL_DCHECK(grain > 0, "a chunk has at least one row");
  if (busy_.exchange(true, std::memory_order_acquire)) return false;
  if (n > 0) run_task(n, grain, body);
  return true;
}

void ThreadPool::run_task(int64_t n, int64_t grain, const Body& body) {
  body_ = &body;
  grain_ = grain;
  for (int t = 0; t < size(); ++t) {
    const Range own = own_share(n, grain, t);
    shares_[t].next.store(own.begin, std::memory_order_relaxed);
    shares_[t].end = own.end;
  }
  const uint32_t last = task_.load(std::memory_order_relaxed);  // closed and empty: nobody else writes it
  task_.store(((last & ~kOpen) + kNumber) | kOpen, std::memory_order_release);
  task_.notify_all();
  help(0);
  task_.fetch_and(~kOpen, std::memory_order_relaxed);
  // On a machine with more runnable threads than CPUs the worker may be waiting for this very CPU.
  for (int spins = 0; (task_.load(std::memory_order_acquire) & kInside) != 0;) {
    if (++spins < kSpins) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
  const std::exception_ptr thrown =
      failed_.exchange(false, std::memory_order_relaxed) ? std::exchange(thrown_, nullptr) : nullptr;
  busy_.store(false, std::memory_order_release);
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

void ThreadPool::help(int thread) {
  try {
    take_chunks(thread);
  } catch (...) {
    const std::lock_guard lock(thrown_mutex_);
    if (!failed_.exchange(true)) thrown_ = std::current_exception();
  }
}

ThreadPool::Range ThreadPool::own_share(int64_t n, int64_t grain, int thread) const {
  const int64_t chunks = ceil_div(n, grain), threads = size();
  return {std::min(chunks * thread / threads * grain, n), std::min(chunks * (thread + 1) / threads * grain, n)};
}

void ThreadPool::take_chunks(int thread) {
  const auto threads = shares_.size();
  for (size_t i = 0; i < threads; ++i) {
    Share& share = shares_[(static_cast<size_t>(thread) + i) % threads];
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const int64_t begin = share.next.fetch_add(grain_, std::memory_order_relaxed);
      if (begin >= share.end) break;
      (*body_)(begin, std::min(begin + grain_, share.end), thread);
    }
  }
}

void ThreadPool::run_worker(int thread) {
  uint32_t seen = 0;  // the number of the last task that was joined
  for (int spins = 0;;) {
    uint32_t task = task_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    const uint32_t number = task & ~(kInside | kOpen);
    if ((task & kOpen) == 0 || number == seen) {
      if (++spins < kSpins) {
        relax();
      } else {
        task_.wait(task, std::memory_order_acquire);
      }
      continue;
    }
    if (!task_.compare_exchange_weak(task, task + 1, std::memory_order_acquire, std::memory_order_relaxed)) continue;
    help(thread);
    task_.fetch_sub(1, std::memory_order_release);
    seen = number;
    spins = 0;
  }
}

int ThreadPool::default_size() { return cpu_share().threads(); }

}  // namespace choral
