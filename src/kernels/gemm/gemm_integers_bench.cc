// Decode and prefill of integers with float scales at the machine's level, beside GGUF's nearest types (gemm_quant_bench.cc has
// the rooflines): int4 in groups of 128 stands beside Q4_0, with zero points beside Q4_1. n = k = 2048; weights rotate through
// 256 MB, so that decode reads memory, not a cache. Threads: all physical cores. CHORAL_CPU_LEVEL caps the level.
#include <benchmark/benchmark.h>

#include "kernels/gemm/gemm_integers_test_data.h"
#include "kernels/gemm/gemm_quant.h"
#include "kernels/gemm/gemm_quant_test_data.h"

namespace choral::kernels {
namespace {

constexpr int64_t kSize = 2048;
constexpr int64_t kTotalBytes = int64_t{256} << 20;

ThreadPool& pool() {
  static ThreadPool threads(ThreadPool::default_size());
  return threads;
}

using Weights = std::vector<std::unique_ptr<PackedMatrix>>;
using Pack = Weights (*)();

template <class PackOne>
Weights enough(PackOne pack_one) {
  Weights weights;
  for (int64_t bytes = 0; bytes < kTotalBytes; bytes += weights.back()->size_bytes()) weights.push_back(std::move(*pack_one()));
  return weights;
}

template <DType kType, Planes kPlanes>
Weights gguf() {
  const auto data = random_quant_matrix(kType, kSize, kSize, 1);
  const WeightRows part{data.view()};
  return enough([&] { return pack_quantised({&part, 1}, pool(), kPlanes); });
}

template <int kBits, bool kWithZeros, Codebook kCodebook, int64_t kGroup, Planes kPlanes>
Weights integers() {
  const IntegerKind kind{{.bits = kBits, .group_size = kGroup, .codebook = kCodebook, .planes = kPlanes}, kWithZeros};
  const auto data = integer_matrix(kSize, kSize, kind, IntegerFill::kRandom, 1);
  const IntegerPart part = data.part();
  return enough([&] { return pack_integers({&part, 1}, kind.options, pool()); });
}

// Packed once for all runs of one kind, which come one after the other.
const Weights& weights_of(Pack pack) {
  static Pack held = nullptr;
  static Weights weights;
  if (pack != held) {
    weights.clear();
    weights = pack();
    held = pack;
  }
  return weights;
}

void multiply(benchmark::State& state, Pack pack) {
  const int64_t m = state.range(0);
  const Weights& weights = weights_of(pack);
  const auto x = gaussian(m * kSize, 2);
  std::vector<float> y(m * kSize);
  Arena scratch;
  size_t i = 0;
  for (auto _ : state) {
    weights[i++ % weights.size()]->multiply({pool(), cpu_level(), scratch}, {x.data(), m, kSize}, {}, {y.data(), m, kSize});
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["GB/s"] = Counter(iterations * static_cast<double>(weights[0]->size_bytes()) * 1e-9, Counter::kIsRate);
  state.counters["GOP/s"] = Counter(iterations * 2.0 * static_cast<double>(m * kSize * kSize) * 1e-9, Counter::kIsRate);
}

#define CHORAL_BENCH(name, pack) \
  BENCHMARK_CAPTURE(multiply, name, pack)->ArgName("m")->Arg(1)->Arg(2)->Arg(8)->Arg(128)->UseRealTime()
CHORAL_BENCH(q4_0, (gguf<DType::kQ4_0, Planes::kTwo>));
CHORAL_BENCH(q4_0_one_plane, (gguf<DType::kQ4_0, Planes::kOne>));
CHORAL_BENCH(int4, (integers<4, false, Codebook::kLinear, 128, Planes::kTwo>));
CHORAL_BENCH(int4_dynamic, (integers<4, false, Codebook::kLinear, 128, Planes::kOneScale>));
CHORAL_BENCH(q4_1, (gguf<DType::kQ4_1, Planes::kTwo>));
CHORAL_BENCH(int4_zeros, (integers<4, true, Codebook::kLinear, 128, Planes::kTwo>));
CHORAL_BENCH(q8_0, (gguf<DType::kQ8_0, Planes::kTwo>));
CHORAL_BENCH(int8, (integers<8, false, Codebook::kLinear, 0, Planes::kTwo>));
CHORAL_BENCH(e2m1, (integers<4, false, Codebook::kE2M1, 32, Planes::kTwo>));

}  // namespace
}  // namespace choral::kernels
