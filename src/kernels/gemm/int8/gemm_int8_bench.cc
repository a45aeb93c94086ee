// Decode and prefill of int8 rows at every CPU level (gemm_bench.h says what is printed). `rows` come quantised, `floats` are
// quantised in the call. CHORAL_CPU_LEVEL caps the level.
#include "kernels/gemm/gemm_bench.h"
#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/gemm/int8/gemm_int8_test_data.h"

namespace choral::kernels {
namespace {

struct Case {
  CpuLevel level;
  int64_t k, n, group_size;
  bool floats;
};

void multiply(benchmark::State& state, const Case& c) {
  const int64_t m = state.range(0);
  const auto data = int8_matrix(c.n, c.k, c.group_size, Int8Fill::kRandom, 1);
  const Int8Part part = data.part();
  const auto weights = rotating_weights([&] { return pack_int8({&part, 1}, {.group_size = c.group_size}, bench_pool()); });
  const auto x = gaussian(m * c.k, 2);
  const auto q = int8_values(m * c.k, Int8Fill::kRandom, 3);
  const std::vector<float> scales(static_cast<size_t>(m), 0.01f);
  std::vector<float> y(static_cast<size_t>(m * c.n));
  Arena scratch;
  const Context ctx{bench_pool(), c.level, scratch};
  const QuantisedRows rows = int8_rows_for(*weights[0], c.level, q, scales, m, scratch);
  bench_products(state, weights, m, c.level, [&](const PackedMatrix& w) {
    c.floats ? w.multiply(ctx, {x.data(), m, c.k}, {}, {y.data(), m, c.n})
             : w.multiply_quantised(ctx, rows, {}, {y.data(), m, c.n});
  });
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
    if (level == CpuLevel::kBase) continue;  // for correctness
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
