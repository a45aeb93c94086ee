// The kernels of a layer that keeps a state, one layer: a gated delta net at Qwen3.5-4B's shape and a Mamba-2 layer at that of
// Granite 4 H Tiny. Rows of one sequence, and single rows of many.
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/recurrent/causal_conv1d.h"
#include "kernels/recurrent/gated_delta_rule.h"
#include "kernels/recurrent/selective_scan.h"

namespace choral::kernels {
namespace {

struct BenchedLayer {
  BenchedLayer(HeadStates shape, int64_t channel_count, int64_t step_columns, int64_t row_count, int64_t sequences)
      : rows(row_count), channels(channel_count), states(shape) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 1);
    const auto fill = [&](std::vector<float>& v, int64_t count) {
      v.resize(count);
      for (float& x : v) x = normal(random);
    };
    fill(weight, 4 * channels);
    fill(of_heads, states.heads);
    for (float& x : of_heads) x = std::abs(x) * 0.1F;
    fill(x, rows * channels);
    fill(steps, rows * step_columns);
    out.resize(rows * states.heads * states.value_dim);
    slots.resize(sequences * slot_floats());
    for (int64_t i = 0; i < sequences; ++i) {
      const auto slot = static_cast<int32_t>(i), count = static_cast<int32_t>(rows / sequences);
      runs.push_back({slot * count, count, slot, slot});
    }
  }
  CausalConv conv() const { return {weight, 4}; }
  int64_t slot_floats() const { return conv().tail_floats() + states.floats(); }
  StateView view() { return {slots.data(), std::ssize(runs), slot_floats()}; }
  StateView matrices() { return view().from(conv().tail_floats()); }
  MatrixView<float> row_matrix(std::vector<float>& v) const { return {v.data(), rows, std::ssize(v) / rows}; }

  int64_t rows, channels;
  HeadStates states;
  std::vector<float> weight, of_heads, x, steps, out, slots;
  std::vector<StateRun> runs;
};

// `recurrence(ctx)` of a layer behind its convolution; so many operations with each element of the states a token.
template <class Recurrence>
void run_layer(benchmark::State& state, BenchedLayer& layer, int64_t operations, Recurrence recurrence) {
  ThreadPool pool(1);
  Arena arena;
  const Context ctx{pool, static_cast<CpuLevel>(state.range(0)), arena};
  for (auto _ : state) {
    causal_conv1d(ctx, layer.conv(), layer.view(), layer.runs, layer.row_matrix(layer.x));
    recurrence(ctx);
  }
  state.counters["flops"] = benchmark::Counter(
      static_cast<double>(state.iterations() * layer.rows * layer.states.floats() * operations), benchmark::Counter::kIsRate);
}

void run_delta_net(benchmark::State& state, int64_t rows, int64_t sequences) {
  DeltaRule rule{.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .decay = {}, .dt_bias = {}};
  BenchedLayer layer(rule.states(), 2 * rule.key_size() + rule.value_size(), 2 * rule.value_heads, rows, sequences);
  rule.decay = rule.dt_bias = layer.of_heads;
  run_layer(state, layer, 7, [&](const Context& ctx) {
    gated_delta_rule(ctx, rule, layer.matrices(), layer.runs, layer.row_matrix(layer.x), layer.row_matrix(layer.steps),
                     layer.row_matrix(layer.out));
  });
}

void run_mamba2(benchmark::State& state, int64_t rows, int64_t sequences) {
  SelectiveScan scan{.groups = 1, .heads = 48, .state_dim = 128, .head_dim = 64, .decay = {}, .dt_bias = {}, .skip = {}};
  BenchedLayer layer(scan.states(), scan.value_size() + 2 * scan.group_size(), scan.heads, rows, sequences);
  scan.decay = scan.dt_bias = scan.skip = layer.of_heads;
  run_layer(state, layer, 5, [&](const Context& ctx) {
    selective_scan(ctx, scan, layer.matrices(), layer.runs, layer.row_matrix(layer.x), layer.row_matrix(layer.steps),
                   layer.row_matrix(layer.out));
  });
}

void bm_delta_net_prefill(benchmark::State& state) { run_delta_net(state, state.range(1), 1); }
void bm_delta_net_decode(benchmark::State& state) { run_delta_net(state, state.range(1), state.range(1)); }
void bm_mamba2_prefill(benchmark::State& state) { run_mamba2(state, state.range(1), 1); }
void bm_mamba2_decode(benchmark::State& state) { run_mamba2(state, state.range(1), state.range(1)); }

constexpr int64_t kAvx2 = static_cast<int64_t>(CpuLevel::kAvx2), kAvx512 = static_cast<int64_t>(CpuLevel::kAvx512);
BENCHMARK(bm_delta_net_prefill)->ArgNames({"level", "rows"})->ArgsProduct({{kAvx2, kAvx512}, {256}});
BENCHMARK(bm_delta_net_decode)->ArgNames({"level", "sequences"})->ArgsProduct({{kAvx2, kAvx512}, {1, 16}});
BENCHMARK(bm_mamba2_prefill)->ArgNames({"level", "rows"})->ArgsProduct({{kAvx2, kAvx512}, {256}});
BENCHMARK(bm_mamba2_decode)->ArgNames({"level", "sequences"})->ArgsProduct({{kAvx2, kAvx512}, {1, 16}});

}  // namespace
}  // namespace choral::kernels
