// What a task costs beside its work: of one empty chunk a thread, by the number of threads, pinned to a CPU each and not, twice
// as many as there are CPUs, and with a second pool beside that does the same. Time that grows with the threads is the pool's
// own; more threads than CPUs wait for each other, whoever wakes them.
#include <benchmark/benchmark.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/cpu_share.h"
#include "base/thread_plan.h"
#include "base/thread_pool.h"

namespace choral {
namespace {

// Threads in caches of eight, as many processors have them.
ThreadPlan plan_of(int threads, bool pinned) {
  const auto cpus = allowed_cpus();
  ThreadPlan plan;
  for (int i = 0; i < threads; ++i) {
    plan.seats.push_back({.domain = i / 8, .cpus = {}});
    if (pinned) plan.seats.back().cpus = {cpus[i % cpus.size()]};
  }
  return plan;
}

void run_tasks(benchmark::State& state, ThreadPool& pool) {
  for (auto _ : state) {
    pool.parallel_for(pool.size(), 1, [](int64_t begin, int64_t, int) { benchmark::DoNotOptimize(begin); });
  }
  state.counters["per_cpu"] = static_cast<double>(pool.size()) / static_cast<double>(allowed_cpus().size());
}

void bm_empty_task(benchmark::State& state) {
  auto pool = ThreadPool::make(plan_of(static_cast<int>(state.range(0)), state.range(1) != 0));
  if (!pool.ok()) return state.SkipWithError(std::string(pool.status().message()).c_str());
  run_tasks(state, **pool);
}

// A task after which everybody has gone to sleep: what it costs to wake them.
void bm_empty_task_of_sleepers(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    state.PauseTiming();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    state.ResumeTiming();
    pool.parallel_for(pool.size(), 1, [](int64_t begin, int64_t, int) { benchmark::DoNotOptimize(begin); });
  }
}

void bm_empty_task_beside_another_pool(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  std::atomic<bool> stop{false};
  std::thread other([&] {
    for (ThreadPool pool(threads); !stop;)
      pool.parallel_for(threads, 1, [](int64_t begin, int64_t, int) { benchmark::DoNotOptimize(begin); });
  });
  ThreadPool pool(threads);
  run_tasks(state, pool);
  stop = true;
  other.join();
}

void threads_and_places(benchmark::internal::Benchmark* bench) {
  const int twice = 2 * static_cast<int>(allowed_cpus().size());
  for (const int pinned : {0, 1}) {
    for (int threads = 2; threads <= 128; threads *= 2) bench->Args({threads, pinned});
    if ((twice & (twice - 1)) != 0 || twice > 128) bench->Args({twice, pinned});
  }
}

BENCHMARK(bm_empty_task)->ArgNames({"threads", "pinned"})->Apply(threads_and_places)->UseRealTime();
BENCHMARK(bm_empty_task_of_sleepers)->ArgName("threads")->RangeMultiplier(4)->Range(2, 128)->UseRealTime()->Iterations(200);
BENCHMARK(bm_empty_task_beside_another_pool)->ArgName("threads")->RangeMultiplier(4)->Range(2, 128)->UseRealTime();

}  // namespace
}  // namespace choral
