// Element-wise kernels against the bandwidth of what they read and write, and one row of sampling.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "kernels/activation/activation.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/sampling/sampling.h"

namespace choral::kernels {
namespace {

std::vector<float> random_values(int64_t count, float spread) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> v(count);
  for (float& x : v) x = normal(random);
  return v;
}

struct Machine {
  ThreadPool pool{1};
  Arena arena;
  Context at(const benchmark::State& state) { return {pool, static_cast<CpuLevel>(state.range(0)), arena}; }
};

void set_bytes(benchmark::State& state, int64_t floats) {
  state.SetBytesProcessed(state.iterations() * floats * static_cast<int64_t>(sizeof(float)));
}

void bm_add_rms_norm(benchmark::State& state) {
  const int64_t rows = state.range(1), cols = 2048;
  const auto x = random_values(rows * cols, 1.0f), w = random_values(cols, 1.0f);
  auto residual = x, y = x;
  Machine machine;
  for (auto _ : state) {
    add_rms_norm(machine.at(state), {x.data(), rows, cols}, {residual.data(), rows, cols}, w, 1e-5f, {y.data(), rows, cols});
  }
  set_bytes(state, rows * cols * 4);
}

void bm_silu_and_mul(benchmark::State& state) {
  const int64_t rows = state.range(1), inter = 8192;
  const auto x = random_values(rows * 2 * inter, 2.0f);
  std::vector<float> y(rows * inter);
  Machine machine;
  for (auto _ : state) silu_and_mul(machine.at(state), {x.data(), rows, 2 * inter}, {y.data(), rows, inter});
  set_bytes(state, rows * inter * 3);
}

void bm_greedy_with_logprobs(benchmark::State& state) {
  const auto logits = random_values(state.range(1), 3.0f);
  const auto level = static_cast<CpuLevel>(state.range(0));
  std::vector<TokenLogprob> top(5);
  for (auto _ : state) {
    benchmark::DoNotOptimize(*argmax_token(level, logits));
    benchmark::DoNotOptimize(top_logprobs(level, logits, log_sum_exp(level, logits), top));
  }
}

void bm_sample(benchmark::State& state) {
  const auto logits = random_values(state.range(1), 3.0f);
  const SamplingSettings settings{.temperature = 0.8f, .top_k = static_cast<int32_t>(state.range(2)), .top_p = 0.95f};
  Arena arena;
  uint64_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        *sample_token(static_cast<CpuLevel>(state.range(0)), logits, settings, random_uniform(1, position++), arena));
  }
}

const std::vector<int64_t> kLevels{static_cast<int64_t>(CpuLevel::kBase), static_cast<int64_t>(CpuLevel::kAvx2),
                                   static_cast<int64_t>(CpuLevel::kAvx512)};
BENCHMARK(bm_add_rms_norm)->ArgNames({"level", "rows"})->ArgsProduct({kLevels, {1, 256}});
BENCHMARK(bm_silu_and_mul)->ArgNames({"level", "rows"})->ArgsProduct({kLevels, {1, 64}});
BENCHMARK(bm_greedy_with_logprobs)->ArgNames({"level", "vocab"})->ArgsProduct({kLevels, {49152, 262144}});
BENCHMARK(bm_sample)->ArgNames({"level", "vocab", "top_k"})->ArgsProduct({kLevels, {49152}, {0, 50}});

}  // namespace
}  // namespace choral::kernels
