// The kernels of a gated delta net at Qwen3.5-4B's shape, one layer: rows of one sequence, and single rows of many.
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/recurrent/causal_conv1d.h"
#include "kernels/recurrent/gated_delta_rule.h"

namespace choral::kernels {
namespace {

struct Layer {
  Layer(int64_t row_count, int64_t sequences) : rows(row_count) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 1);
    const auto fill = [&](std::vector<float>& v, int64_t count) {
      v.resize(count);
      for (float& x : v) x = normal(random);
    };
    fill(weight, 4 * channels());
    fill(decay, rule.value_heads);
    for (float& x : decay) x = std::abs(x) * 0.1F;
    fill(x, rows * channels());
    fill(ba, rows * 2 * rule.value_heads);
    out.resize(rows * rule.value_size());
    slots.resize(sequences * (conv().tail_floats() + rule.state_floats()));
    rule.decay = rule.dt_bias = decay;
    for (int64_t i = 0; i < sequences; ++i) {
      const auto slot = static_cast<int32_t>(i), count = static_cast<int32_t>(rows / sequences);
      runs.push_back({slot * count, count, slot, slot});
    }
  }
  int64_t channels() const { return 2 * rule.key_size() + rule.value_size(); }
  CausalConv conv() const { return {weight, 4}; }
  StateView view() { return {slots.data(), std::ssize(runs), conv().tail_floats() + rule.state_floats()}; }

  int64_t rows;
  DeltaRule rule{.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .decay = {}, .dt_bias = {}};
  std::vector<float> weight, decay, x, ba, out, slots;
  std::vector<StateRun> runs;
};

void run_layer(benchmark::State& state, int64_t rows, int64_t sequences) {
  Layer layer(rows, sequences);
  ThreadPool pool(1);
  Arena arena;
  const Context ctx{pool, static_cast<CpuLevel>(state.range(0)), arena};
  for (auto _ : state) {
    causal_conv1d(ctx, layer.conv(), layer.view(), layer.runs, {layer.x.data(), rows, layer.channels()});
    gated_delta_rule(ctx, layer.rule, layer.view().from(layer.conv().tail_floats()), layer.runs,
                     {layer.x.data(), rows, layer.channels()},
                     MatrixView<const float>(layer.ba.data(), rows, 2 * layer.rule.value_heads),
                     {layer.out.data(), rows, layer.rule.value_size()});
  }
  // Two products a token with each element of the states, and its update.
  state.counters["flops"] = benchmark::Counter(static_cast<double>(state.iterations() * rows * layer.rule.state_floats() * 7),
                                               benchmark::Counter::kIsRate);
}

void bm_prefill(benchmark::State& state) { run_layer(state, state.range(1), 1); }
void bm_decode(benchmark::State& state) { run_layer(state, state.range(1), state.range(1)); }

BENCHMARK(bm_prefill)->ArgNames({"level", "rows"})->ArgsProduct({{1, 2}, {256}});
BENCHMARK(bm_decode)->ArgNames({"level", "sequences"})->ArgsProduct({{1, 2}, {1, 16}});

}  // namespace
}  // namespace choral::kernels
