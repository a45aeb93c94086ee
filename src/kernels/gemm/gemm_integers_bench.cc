// Decode and prefill of integers with float scales at the machine's level, beside GGUF's nearest types: int4 in groups of 128
// stands beside Q4_0, with zero points beside Q4_1. gemm_bench.h says what is printed. n = k = 2048. CHORAL_CPU_LEVEL caps the
// level.
#include "kernels/gemm/gemm_bench.h"
#include "kernels/gemm/gemm_integers_test_data.h"
#include "kernels/gemm/gemm_quant.h"
#include "kernels/gemm/gemm_quant_test_data.h"

namespace choral::kernels {
namespace {

constexpr int64_t kSize = 2048;
using Pack = RotatingWeights (*)();

template <DType kType, Planes kPlanes>
RotatingWeights gguf() {
  const auto data = random_quant_matrix(kType, kSize, kSize, 1);
  const WeightRows part{data.view()};
  return rotating_weights([&] { return pack_quantised({&part, 1}, bench_pool(), kPlanes); });
}

template <int kBits, bool kWithZeros, Codebook kCodebook, int64_t kGroup, Planes kPlanes>
RotatingWeights integers() {
  const IntegerKind kind{{.bits = kBits, .group_size = kGroup, .codebook = kCodebook, .planes = kPlanes}, kWithZeros};
  const auto data = integer_matrix(kSize, kSize, kind, IntegerFill::kRandom, 1);
  const IntegerPart part = data.part();
  return rotating_weights([&] { return pack_integers({&part, 1}, kind.options, bench_pool()); });
}

// Packed once for all runs of one kind, which come one after the other.
const RotatingWeights& weights_of(Pack pack) {
  static Pack held = nullptr;
  static RotatingWeights weights;
  if (pack != held) {
    weights.clear();
    weights = pack();
    held = pack;
  }
  return weights;
}

void multiply(benchmark::State& state, Pack pack) {
  const int64_t m = state.range(0);
  const auto x = gaussian(m * kSize, 2);
  std::vector<float> y(m * kSize);
  Arena scratch;
  bench_products(state, weights_of(pack), m, cpu_level(), [&](const PackedMatrix& w) {
    w.multiply({bench_pool(), cpu_level(), scratch}, {x.data(), m, kSize}, {}, {y.data(), m, kSize});
  });
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
