// The experts of a mixture at once beside one after the other, both in turns in one process: `ratio` is the loop's time over that
// of the grouped product, `read` and `fma` what the latter takes of the machine's read bandwidth and FMA peak.
// Names: GroupedMatmul/<type>/<rows an expert>x<n>x<k>, of 8 experts a call, whose weights rotate through 512 MiB.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kernels/gemm/gemm_bench.h"
#include "kernels/gemm/gemm_float.h"
#include "kernels/gemm/gemm_quant.h"
#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/gemm/grouped_matmul.h"
#include "kernels/gemm/int8/gemm_int8_test_data.h"

namespace choral::kernels {
namespace {

constexpr size_t kExperts = 8;
constexpr int64_t kRotateBytes = int64_t{512} << 20;

struct Form {
  const char* name;
  DType type;  // int8: W8A8_DYNAMIC
};

std::unique_ptr<PackedMatrix> make_matrix(const Form& form, int64_t n, int64_t k) {
  if (form.type == DType::kI8) {
    const auto data = int8_matrix(n, k, 0, Int8Fill::kRandom, 1);
    const auto part = data.part();
    return std::move(*pack_int8({&part, 1}, {}, bench_pool()));
  }
  if (form.type == DType::kBF16) {
    const std::vector<uint16_t> w(n * k, 0x3C00);
    const WeightRows part{{reinterpret_cast<const std::byte*>(w.data()), DType::kBF16, {n, k}, kCpuDevice}};
    return std::move(*pack_float({&part, 1}, DType::kBF16, bench_pool()));
  }
  const auto data = random_quant_matrix(form.type, n, k, 1);
  const WeightRows part{data.view()};
  return std::move(*pack_quantised({&part, 1}, bench_pool()));
}

// The best tenth: whoever else works on the machine adds to a time and takes nothing from it.
double best(std::vector<double>& values) {
  const auto tenth = values.begin() + std::ssize(values) / 10;
  std::nth_element(values.begin(), tenth, values.end());
  return *tenth;
}

void GroupedMatmul(benchmark::State& state, const Form& form, int64_t rows, int64_t n, int64_t k) {
  Arena scratch;
  const Context ctx{bench_pool(), cpu_level(), scratch};
  RotatingWeights weights;
  for (int64_t bytes = 0; bytes < kRotateBytes || weights.size() % kExperts != 0; bytes += weights.back()->size_bytes()) {
    weights.push_back(make_matrix(form, n, k));
  }
  const auto x = gaussian(kExperts * rows * k, 1);
  std::vector<float> y(kExperts * rows * n);
  size_t next = 0;
  const auto take_products = [&](std::array<GroupProduct, kExperts>& products) {
    for (size_t e = 0; e < kExperts; ++e, ++next) {
      const int64_t begin = static_cast<int64_t>(e) * rows;
      products[e] = {
          weights[next % weights.size()].get(), {{x.data() + begin * k, rows, k}, {}}, {}, {y.data() + begin * n, rows, n}};
    }
  };
  std::vector<double> grouped_s, loop_s;
  std::array<GroupProduct, kExperts> products;
  for (auto _ : state) {
    take_products(products);
    double begin = now_s();
    grouped_matmul(ctx, products);
    grouped_s.push_back(now_s() - begin);
    state.SetIterationTime(grouped_s.back());
    take_products(products);
    begin = now_s();
    for (const auto& product : products) product.w->multiply(ctx, product.x.x, product.epilogue, product.y);
    loop_s.push_back(now_s() - begin);
  }
  const double grouped = best(grouped_s), bytes = static_cast<double>(kExperts * weights.front()->size_bytes());
  const MachinePeaks& peak = bench_peaks(ctx.level);
  state.counters["ratio"] = best(loop_s) / grouped;
  state.counters["read"] = bytes * 1e-9 / grouped / peak.read_gbps;
  state.counters["fma"] = 2e-9 * static_cast<double>(rows * n * k * static_cast<int64_t>(kExperts)) / grouped / peak.fma_gflops;
}

// Qwen3-30B-A3B's experts, DeepSeek-V2-Lite's down_proj, and small ones.
constexpr std::pair<int64_t, int64_t> kShapes[] = {{1536, 2048}, {2048, 768}, {2048, 1408}, {256, 512}};

const int kRegistered = [] {
  for (const Form& form : {Form{"bf16", DType::kBF16}, Form{"q4_0", DType::kQ4_0}, Form{"int8", DType::kI8}}) {
    for (const auto& [n, k] : kShapes) {
      for (const int64_t rows : {1, 2, 8, 64}) {
        const std::string name = std::string("GroupedMatmul/") + form.name + "/" + std::to_string(rows) + "x" +
                                 std::to_string(n) + "x" + std::to_string(k);
        benchmark::RegisterBenchmark(
            name.c_str(), [form, rows, n = n, k = k](benchmark::State& state) { GroupedMatmul(state, form, rows, n, k); })
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
  return 0;
}();

}  // namespace
}  // namespace choral::kernels
