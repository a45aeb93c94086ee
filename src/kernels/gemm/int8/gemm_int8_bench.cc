// Decode and prefill of int8 rows at every CPU level, as fractions of what the machine gives in the same process
// (kernels/roofline.h): `read` of memory's read bandwidth, `int8` of the level's int8 peak. Weights rotate through 256 MB, so
// that decode reads memory, not a cache. `rows` come quantised, `floats` are quantised in the call. Threads: all physical cores.
// CHORAL_CPU_LEVEL caps the level.
#include <benchmark/benchmark.h>

#include <map>

#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/gemm/int8/gemm_int8_test_data.h"
#include "kernels/roofline.h"

namespace choral::kernels {
namespace {

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

struct Case {
  CpuLevel level;
  int64_t k, n, group_size;
  bool floats;
};

void multiply(benchmark::State& state, const Case& c) {
  const int64_t m = state.range(0);
  const auto data = int8_matrix(c.n, c.k, c.group_size, Int8Fill::kRandom, 1);
  std::vector<std::unique_ptr<PackedMatrix>> weights;
  for (int64_t bytes = 0; bytes < kTotalBytes; bytes += weights.back()->size_bytes()) {
    const Int8Part part = data.part();
    weights.push_back(std::move(*pack_int8({&part, 1}, {.group_size = c.group_size}, pool())));
  }
  const MachinePeaks& peak = peaks(c.level);
  const auto x = gaussian(m * c.k, 2);
  const auto q = int8_values(m * c.k, Int8Fill::kRandom, 3);
  const std::vector<float> scales(static_cast<size_t>(m), 0.01f);
  std::vector<float> y(static_cast<size_t>(m * c.n));
  Arena scratch;
  const Context ctx{pool(), c.level, scratch};
  const QuantisedRows rows = int8_rows_for(*weights[0], c.level, q, scales, m, scratch);
  size_t i = 0;
  for (auto _ : state) {
    const PackedMatrix& w = *weights[i++ % weights.size()];
    c.floats ? w.multiply(ctx, {x.data(), m, c.k}, {}, {y.data(), m, c.n})
             : w.multiply_quantised(ctx, rows, {}, {y.data(), m, c.n});
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  const double bytes = static_cast<double>(state.iterations()) * static_cast<double>(weights[0]->size_bytes());
  const double operations = static_cast<double>(state.iterations()) * 2.0 * static_cast<double>(m * c.k * c.n);
  state.counters["GB/s"] = Counter(bytes * 1e-9, Counter::kIsRate);
  state.counters["read"] = Counter(bytes * 1e-9 / peak.read_gbps, Counter::kIsRate);
  state.counters["GOP/s"] = Counter(operations * 1e-9, Counter::kIsRate);
  state.counters["int8"] = Counter(operations * 1e-9 / peak.int8_gops, Counter::kIsRate);
}

void add(const Case& c) {
  const std::string groups = c.group_size == 0 ? "" : fmt::format("/groups of {}", c.group_size);
  const std::string name =
      fmt::format("GemmInt8/{}/{}x{}{}/{}", cpu_level_name(c.level), c.k, c.n, groups, c.floats ? "floats" : "rows");
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { multiply(state, c); })
      ->ArgName("m")
      ->Arg(1)
      ->Arg(8)
      ->Arg(64)
      ->Arg(256)
      ->UseRealTime();
}

const bool kRegistered = [] {
  for (const CpuLevel level : usable_cpu_levels()) {
    if (level == CpuLevel::kBase || level == CpuLevel::kBf16) continue;  // base is for correctness; bf16 runs VNNI's form
    for (const bool floats : {false, true}) {
      add({level, 2048, 2048, 0, floats});
      add({level, 2048, 8192, 0, floats});
    }
    for (const int64_t group : {32, 128}) add({level, 2048, 2048, group, false});
  }
  return true;
}();

}  // namespace
}  // namespace choral::kernels
