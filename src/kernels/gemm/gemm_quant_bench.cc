// Decode and prefill of every quantised type at every CPU level (gemm_bench.h says what is printed). n = k = 2048.
// CHORAL_CPU_LEVEL caps the level.
#include "kernels/gemm/gemm_bench.h"
#include "kernels/gemm/gemm_quant.h"
#include "kernels/gemm/gemm_quant_test_data.h"

namespace choral::kernels {
namespace {

constexpr int64_t kSize = 2048;

void multiply(benchmark::State& state, DType type, CpuLevel level) {
  const int64_t m = state.range(0);
  const auto data = random_quant_matrix(type, kSize, kSize, 1);
  const WeightRows part{data.view()};
  const auto weights = rotating_weights([&] { return pack_quantised({&part, 1}, bench_pool()); });
  const auto x = gaussian(m * kSize, 2);
  std::vector<float> y(m * kSize);
  Arena scratch;
  bench_products(state, weights, m, level, [&](const PackedMatrix& w) {
    w.multiply({bench_pool(), level, scratch}, {x.data(), m, kSize}, {}, {y.data(), m, kSize});
  });
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
