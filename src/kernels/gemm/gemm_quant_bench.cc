// Decode and prefill of every quantised type at every CPU level, as fractions of what the machine gives in the same process
// (kernels/roofline.h): `read` of memory's read bandwidth, `int8` of the level's int8 peak. n = k = 2048; weights rotate through
// 256 MB, so that decode reads memory, not a cache. Threads: all physical cores. CHORAL_CPU_LEVEL caps the level.
#include <benchmark/benchmark.h>

#include <map>

#include "kernels/gemm/gemm_quant.h"
#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/roofline.h"

namespace choral::kernels {
namespace {

constexpr int64_t kSize = 2048;
constexpr int64_t kTotalBytes = int64_t{256} << 20;

ThreadPool& pool() {
  static ThreadPool threads(ThreadPool::default_size());
  return threads;
}

const MachinePeaks& peaks(CpuLevel level) {
  static std::map<CpuLevel, MachinePeaks> measured;
  const auto [at, is_new] = measured.try_emplace(level);
  if (is_new) {
    Arena scratch;
    at->second = measure_peaks({pool(), level, scratch});
  }
  return at->second;
}

void multiply(benchmark::State& state, DType type, CpuLevel level) {
  const int64_t m = state.range(0);
  const auto data = random_quant_matrix(type, kSize, kSize, 1);
  std::vector<std::unique_ptr<PackedMatrix>> weights;
  for (int64_t bytes = 0; bytes < kTotalBytes; bytes += weights.back()->size_bytes()) {
    const WeightRows part{data.view()};
    weights.push_back(std::move(*pack_quantised({&part, 1}, pool())));
  }
  const MachinePeaks& peak = peaks(level);
  const auto x = gaussian(m * kSize, 2);
  std::vector<float> y(m * kSize);
  Arena scratch;
  size_t i = 0;
  for (auto _ : state) {
    weights[i++ % weights.size()]->multiply({pool(), level, scratch}, {x.data(), m, kSize}, {}, {y.data(), m, kSize});
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  const double bytes = static_cast<double>(state.iterations()) * static_cast<double>(weights[0]->size_bytes());
  const double operations = static_cast<double>(state.iterations()) * 2.0 * static_cast<double>(m * kSize * kSize);
  state.counters["GB/s"] = Counter(bytes * 1e-9, Counter::kIsRate);
  state.counters["read"] = Counter(bytes * 1e-9 / peak.read_gbps, Counter::kIsRate);
  state.counters["GOP/s"] = Counter(operations * 1e-9, Counter::kIsRate);
  state.counters["int8"] = Counter(operations * 1e-9 / peak.int8_gops, Counter::kIsRate);
}

const bool kRegistered = [] {
  for (const CpuLevel level : usable_cpu_levels()) {
    if (level == CpuLevel::kBase || level > CpuLevel::kVnni) continue;  // base is for correctness; above VNNI the same form runs
    for (const DType type : kQuantTypes) {
      const std::string name = fmt::format("GemmQuant/{}/{}", dtype_name(type), cpu_level_name(level));
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { multiply(state, type, level); })
          ->ArgName("m")
          ->Arg(1)
          ->Arg(4)
          ->Arg(8)
          ->Arg(32)
          ->Arg(128)
          ->Arg(512)
          ->UseRealTime();
    }
  }
  return true;
}();

}  // namespace
}  // namespace choral::kernels
