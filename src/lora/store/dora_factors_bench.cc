// DoRA's factors of one layer of a model of 1B parameters (16 such layers), every linear module adapted: dora_factors() on one
// and two threads, and a plain loop over rows, in one process so that their ratios are of one machine state. Names: Dora/<how W
// is stored>/r<rank>. Counters: milliseconds a layer of each way, and of all 16 layers.
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>

#include "base/clock.h"
#include "kernels/gemm/gemm_float.h"
#include "kernels/gemm/gemm_quant.h"
#include "lora/store/dora_factors.h"

namespace choral::lora {
namespace {

constexpr int kLayers = 16;

struct Module {
  std::unique_ptr<kernels::PackedMatrix> base;
  LoRATarget target;
  LoRALayerWeights layer;
};

AdapterTensor random_tensor(std::initializer_list<int64_t> shape, std::mt19937& random) {
  auto tensor = Tensor::allocate(DType::kF32, Shape{shape});
  for (float& value : tensor->as<float>()) value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 1e-4F;
  return AdapterTensor(std::move(*tensor));
}

// Any bytes make blocks of Q4_0 and Q8_0; their scales are set to 1.
std::unique_ptr<kernels::PackedMatrix> random_base(DType type, int64_t out, int64_t in, std::mt19937& random, ThreadPool& pool) {
  auto tensor = Tensor::allocate(type, {out, in});
  std::byte* bytes = tensor->data();
  const auto& f = facts(type);
  for (int64_t i = 0; i < tensor->view().size_bytes(); ++i) bytes[i] = static_cast<std::byte>(random());
  for (int64_t at = 0; f.is_block && at < tensor->view().size_bytes(); at += f.block_bytes) {
    bytes[at] = std::byte{0};
    bytes[at + 1] = std::byte{0x3C};
  }
  if (type == DType::kBF16) {
    for (int64_t at = 1; at < tensor->view().size_bytes(); at += 2) bytes[at] = (bytes[at] & std::byte{0x80}) | std::byte{0x3C};
  }
  const kernels::WeightRows rows{tensor->view(), {}};
  auto packed = f.is_block ? kernels::pack_quantised({&rows, 1}, pool) : kernels::pack_float({&rows, 1}, type, pool);
  return std::move(*packed);
}

std::vector<Module> one_layer(DType type, int64_t rank) {
  constexpr std::array<std::array<int64_t, 2>, 7> kShapes{
      {{2048, 2048}, {512, 2048}, {512, 2048}, {2048, 2048}, {8192, 2048}, {8192, 2048}, {2048, 8192}}};
  std::mt19937 random(1);
  ThreadPool pool(ThreadPool::default_size());
  std::vector<Module> modules;
  for (const auto& [out, in] : kShapes) {
    Module& module = modules.emplace_back();
    module.base = random_base(type, out, in, random, pool);
    module.target.base_row = [base = module.base.get()](int64_t row, std::span<float> values) {
      return base->read_row(row, values);
    };
    module.layer.rank = rank;
    module.layer.scaling = 2.0F;
    module.layer.lora_a = random_tensor({rank, in}, random);
    module.layer.lora_b = random_tensor({out, rank}, random);
    module.layer.magnitude = random_tensor({out}, random);
  }
  return modules;
}

double plain_loop(const Module& module) {
  const auto& [base, target, layer] = module;
  const float *a = reinterpret_cast<const float*>(layer.lora_a.view.data),
              *b = reinterpret_cast<const float*>(layer.lora_b.view.data);
  std::vector<float> row(layer.input_dim());
  double total = 0;
  for (int64_t j = 0; j < layer.output_dim(); ++j) {
    if (!target.base_row(j, row).ok()) return 0;
    for (int64_t r = 0; r < layer.rank; ++r) {
      const float weight = layer.scaling * b[j * layer.rank + r];
      const float* a_row = a + r * layer.input_dim();
      for (size_t k = 0; k < row.size(); ++k) row[k] += weight * a_row[k];
    }
    double squares = 0;
    for (const float x : row) squares += static_cast<double>(x) * x;
    total += std::sqrt(squares);
  }
  return total;
}

void dora(benchmark::State& state, DType type, int64_t rank) {
  const auto modules = one_layer(type, rank);
  ThreadPool one(1), two(2);
  double plain_s = 0, one_s = 0, two_s = 0;
  const auto timed = [](double& seconds, const auto& work) {
    const double begin = now_s();
    work();
    seconds += now_s() - begin;
  };
  const auto all = [&](ThreadPool& pool) {
    for (const auto& m : modules) benchmark::DoNotOptimize(dora_factors(pool, cpu_level(), m.target, 0, m.layer));
  };
  for (auto unused : state) {
    timed(plain_s, [&] {
      for (const auto& m : modules) benchmark::DoNotOptimize(plain_loop(m));
    });
    timed(one_s, [&] { all(one); });
    timed(two_s, [&] { all(two); });
  }
  const double runs = static_cast<double>(state.iterations());
  state.counters["plain_ms"] = plain_s * 1e3 / runs;
  state.counters["one_ms"] = one_s * 1e3 / runs;
  state.counters["two_ms"] = two_s * 1e3 / runs;
  state.counters["plain_all_s"] = plain_s * kLayers / runs;
  state.counters["two_all_s"] = two_s * kLayers / runs;
}

BENCHMARK_CAPTURE(dora, Dora_bf16_r16, DType::kBF16, 16)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dora, Dora_bf16_r64, DType::kBF16, 64)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dora, Dora_q8_0_r16, DType::kQ8_0, 16)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dora, Dora_q4_0_r16, DType::kQ4_0, 16)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace choral::lora
