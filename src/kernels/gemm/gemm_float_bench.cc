// y = x·Wᵀ with float weights, as fractions of the machine's peaks measured in the same process.
// Names: MultiplyFloat/<type>/<m>x<n>x<k>, of fp8 with a scale a channel or (fp8g128) for each 128 k of it; few rows are judged
// by `of_read`, many by `of_fma` (or `of_tile` at level amx). Weights rotate through 384 MiB, so that decode reads memory and not
// a cache.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "base/checked_math.h"
#include "kernels/gemm/gemm_float.h"
#include "kernels/gemm/gemm_fp8.h"
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

// How weights are packed.
struct Form {
  const char* name;
  DType type;
  int64_t group_size = 0;  // of e4m3
};

// Random weights [n, k] in `form`.
class Source {
 public:
  Source(const Form& form, int64_t n, int64_t k) : form_(form), shape_{n, k} {
    std::mt19937 random(1);
    if (form.type == DType::kF8E4M3) {
      for (int64_t i = 0; i < n * k; ++i) codes_.push_back(static_cast<uint8_t>(random() % 0x7F));
      scales_.resize(n * (form.group_size == 0 ? 1 : ceil_div(k, form.group_size)), 0.01f);
      return;
    }
    floats_.resize(n * k);
    for (float& v : floats_) v = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
  }

  Result<std::unique_ptr<PackedMatrix>> pack(ThreadPool& pool) const {
    if (form_.type == DType::kF8E4M3) {
      const WeightRows rows{{reinterpret_cast<const std::byte*>(codes_.data()), DType::kF8E4M3, shape_, kCpuDevice}, {}};
      const Fp8Part part{rows, scales_};
      return pack_fp8({&part, 1}, form_.group_size, pool);
    }
    const WeightRows part{{reinterpret_cast<const std::byte*>(floats_.data()), DType::kF32, shape_, kCpuDevice}, {}};
    return pack_float({&part, 1}, form_.type, pool);
  }

 private:
  Form form_;
  Shape shape_;
  std::vector<float> floats_, scales_;
  std::vector<uint8_t> codes_;
};

void MultiplyFloat(benchmark::State& state, const Form& form, int64_t m, int64_t n, int64_t k) {
  Machine& here = machine();
  const Source source(form, n, k);
  std::vector<std::unique_ptr<PackedMatrix>> weights;
  for (int64_t bytes = 0; weights.empty() || (m <= 32 && bytes < kRotateBytes); bytes += weights.back()->size_bytes()) {
    auto packed = source.pack(here.pool);
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
  const Form forms[] = {{"bf16", DType::kBF16},
                        {"f16", DType::kF16},
                        {"f32", DType::kF32},
                        {"fp8", DType::kF8E4M3},
                        {"fp8g128", DType::kF8E4M3, 128}};
  const std::pair<int64_t, int64_t> shapes[] = {{576, 576},   {1536, 576},  {576, 1536}, {49152, 576},
                                                {2048, 2048}, {8192, 2048}, {2048, 8192}};
  for (const Form& form : forms) {
    for (const auto& [n, k] : shapes) {
      for (const int64_t m : {1, 2, 4, 8, 16, 32, 128, 512, 1024}) {
        if (n > 10000 && m > 128) continue;
        const auto title = fmt::format("MultiplyFloat/{}/{}x{}x{}", form.name, m, n, k);
        benchmark::RegisterBenchmark(title.c_str(), MultiplyFloat, form, m, n, k)->UseRealTime()->MinTime(0.2);
      }
    }
  }
  for (const Form& form : {forms[0], forms[1], forms[2]}) {
    const auto title = fmt::format("PackFloat/{}->{}", form.name, form.name);
    benchmark::RegisterBenchmark(title.c_str(), PackFloat, form.type, form.type)->UseRealTime();
  }
  benchmark::RegisterBenchmark("PackFloat/f32->bf16", PackFloat, DType::kF32, DType::kBF16)->UseRealTime();
  benchmark::RegisterBenchmark("PackFloat/q8_0->bf16", PackFloat, DType::kQ8_0, DType::kBF16)->UseRealTime();
  return true;
}();

}  // namespace
}  // namespace choral::kernels
