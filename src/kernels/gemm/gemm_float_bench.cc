// y = x·Wᵀ with float weights, as fractions of the machine's peaks measured in the same process.
// Names: MultiplyFloat/<type>/<m>x<n>x<k>; few rows are judged by `of_read`, many by `of_fma` (or `of_tile` at level amx).
// Weights rotate through 384 MiB, so that decode reads memory and not a cache.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "kernels/gemm/gemm_float.h"
#include "kernels/roofline.h"

namespace choral::kernels {
namespace {

constexpr int64_t kRotateBytes = int64_t{384} << 20;

struct Machine {
  ThreadPool pool{ThreadPool::default_size()};
  Arena arena;
  Context ctx{pool, cpu_level(), arena};
  MachinePeaks peaks = measure_peaks(ctx);
};

Machine& machine() {
  static Machine one;
  return one;
}

void MultiplyFloat(benchmark::State& state, DType type, int64_t m, int64_t n, int64_t k) {
  Machine& here = machine();
  std::vector<float> source(n * k);
  std::mt19937 random(1);
  for (float& v : source) v = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
  const WeightRows part{{reinterpret_cast<const std::byte*>(source.data()), DType::kF32, {n, k}, kCpuDevice}, {}};
  std::vector<std::unique_ptr<PackedMatrix>> weights;
  for (int64_t bytes = 0; weights.empty() || (m <= 32 && bytes < kRotateBytes); bytes += weights.back()->size_bytes()) {
    auto packed = pack_float({&part, 1}, type, here.pool);
    if (!packed.ok()) return state.SkipWithError(packed.status().message().c_str());
    weights.push_back(std::move(*packed));
  }
  std::vector<float> x(m * k, 0.5f), y(m * n);
  size_t next = 0;
  for (auto _ : state) {
    weights[next++ % weights.size()]->multiply(here.ctx, {x.data(), m, k}, {}, {y.data(), m, n});
    benchmark::ClobberMemory();
  }
  const double runs = static_cast<double>(state.iterations());
  const double gbytes = runs * static_cast<double>(weights[0]->size_bytes()) / 1e9;
  const double gflop = runs * 2.0 * static_cast<double>(m * n * k) / 1e9;
  const auto rate = [](double amount) { return benchmark::Counter(amount, benchmark::Counter::kIsRate); };
  state.counters["GB/s"] = rate(gbytes);
  state.counters["GFLOP/s"] = rate(gflop);
  state.counters["of_read"] = rate(gbytes / here.peaks.read_gbps);
  if (here.peaks.tile_gflops > 0) state.counters["of_tile"] = rate(gflop / here.peaks.tile_gflops);
  state.counters["of_fma"] = rate(gflop / here.peaks.fma_gflops);
}

void PackFloat(benchmark::State& state, DType from, DType as) {
  Machine& here = machine();
  constexpr int64_t kN = 8192, kK = 8192;
  std::vector<std::byte> source(row_bytes(from, kK) * kN);
  const WeightRows part{{source.data(), from, {kN, kK}, kCpuDevice}, {}};
  for (auto _ : state) benchmark::DoNotOptimize(pack_float({&part, 1}, as, here.pool).ok());
  state.SetBytesProcessed(state.iterations() * std::ssize(source));
}

[[maybe_unused]] const bool registered = [] {
  const std::pair<const char*, DType> types[] = {{"bf16", DType::kBF16}, {"f16", DType::kF16}, {"f32", DType::kF32}};
  const std::pair<int64_t, int64_t> shapes[] = {{576, 576},   {1536, 576},  {576, 1536}, {49152, 576},
                                                {2048, 2048}, {8192, 2048}, {2048, 8192}};
  for (const auto& [name, type] : types) {
    for (const auto& [n, k] : shapes) {
      for (const int64_t m : {1, 2, 4, 8, 16, 32, 128, 512, 1024}) {
        if (n > 10000 && m > 128) continue;
        const auto title = fmt::format("MultiplyFloat/{}/{}x{}x{}", name, m, n, k);
        benchmark::RegisterBenchmark(title.c_str(), MultiplyFloat, type, m, n, k)->UseRealTime()->MinTime(0.2);
      }
    }
    benchmark::RegisterBenchmark(fmt::format("PackFloat/{}->{}", name, name).c_str(), PackFloat, type, type)->UseRealTime();
  }
  benchmark::RegisterBenchmark("PackFloat/f32->bf16", PackFloat, DType::kF32, DType::kBF16)->UseRealTime();
  benchmark::RegisterBenchmark("PackFloat/q8_0->bf16", PackFloat, DType::kQ8_0, DType::kBF16)->UseRealTime();
  return true;
}();

}  // namespace
}  // namespace choral::kernels
