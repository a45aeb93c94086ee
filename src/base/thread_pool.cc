#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

#include "base/check.h"

namespace choral {
namespace {

// About 100 µs: longer than the gap between two kernels of a step, shorter than anyone notices an idle core.
constexpr int kSpins = 4000;

inline void relax() { __builtin_ia32_pause(); }

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < std::max(threads, 1); ++i) workers_.emplace_back([this, i] { run_worker(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(int64_t n, int64_t grain, Body body) {
  CHORAL_DCHECK(grain > 0, "a chunk has at least one row");
  if (n <= 0) return;
  if (workers_.empty() || n <= grain) return body(0, n, 0);
  body_ = &body;
  n_ = n;
  grain_ = grain;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  take_chunks(0);
  // On a machine with more runnable threads than CPUs the worker may be waiting for this very CPU.
  for (int spins = 0; busy_.load(std::memory_order_acquire) != 0;) {
    if (++spins < kSpins) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::take_chunks(int thread) {
  for (;;) {
    const int64_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (begin >= n_) return;
    (*body_)(begin, std::min(begin + grain_, n_), thread);
  }
}

void ThreadPool::run_worker(int thread) {
  uint32_t seen = 0;
  for (;;) {
    int spins = 0;
    while (generation_.load(std::memory_order_acquire) == seen) {
      if (++spins < kSpins) {
        relax();
      } else {
        generation_.wait(seen, std::memory_order_acquire);
      }
    }
    ++seen;
    if (stop_.load()) return;
    take_chunks(thread);
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

int ThreadPool::default_size() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return std::max(1u, std::thread::hardware_concurrency());
  std::set<std::string> cores;  // one entry a physical core: the list of its SMT siblings
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const auto siblings = first_line("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    cores.insert(siblings.empty() ? std::to_string(cpu) : siblings);
  }
  return std::max<int>(1, static_cast<int>(cores.size()));
}

}  // namespace choral
