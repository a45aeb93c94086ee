// What benches of packed matrices do alike: all physical cores, weights that rotate through so much memory that decode reads it
// and not a cache, and rates, also as fractions of what the machine gives in the same process (kernels/roofline.h): `read` of
// memory's read bandwidth, `int8` of the level's int8 peak.
#pragma once

#include <benchmark/benchmark.h>

#include <map>
#include <memory>
#include <vector>

#include "kernels/gemm/packed_matrix.h"
#include "kernels/roofline.h"

namespace choral::kernels {

inline ThreadPool& bench_pool() {
  static ThreadPool threads(ThreadPool::default_size());
  return threads;
}

inline const MachinePeaks& bench_peaks(CpuLevel level) {
  static std::map<CpuLevel, MachinePeaks> measured;
  const auto [at, is_new] = measured.try_emplace(level);
  if (is_new) {
    Arena scratch;
    at->second = measure_peaks({bench_pool(), level, scratch});
  }
  return at->second;
}

using RotatingWeights = std::vector<std::unique_ptr<PackedMatrix>>;

// As many of pack() as fill 256 MiB.
template <class Pack>
RotatingWeights rotating_weights(Pack pack) {
  RotatingWeights weights;
  for (int64_t bytes = 0; bytes < int64_t{256} << 20; bytes += weights.back()->size_bytes())
    weights.push_back(std::move(*pack()));
  return weights;
}

// Times multiply(weights[i]) of m rows.
template <class Multiply>
void bench_products(benchmark::State& state, const RotatingWeights& weights, int64_t m, CpuLevel level, Multiply multiply) {
  const MachinePeaks& peak = bench_peaks(level);
  size_t i = 0;
  for (auto _ : state) {
    multiply(*weights[i++ % weights.size()]);
    benchmark::ClobberMemory();
  }
  const PackedMatrix& w = *weights.front();
  const auto runs = static_cast<double>(state.iterations());
  const double gbytes = runs * static_cast<double>(w.size_bytes()) * 1e-9;
  const double operations = runs * 2.0 * static_cast<double>(m * w.k() * w.n()) * 1e-9;
  const auto rate = [](double amount) { return benchmark::Counter(amount, benchmark::Counter::kIsRate); };
  state.counters["GB/s"] = rate(gbytes);
  state.counters["read"] = rate(gbytes / peak.read_gbps);
  state.counters["GOP/s"] = rate(operations);
  state.counters["int8"] = rate(operations / peak.int8_gops);
}

}  // namespace choral::kernels
