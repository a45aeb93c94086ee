// Attention as a fraction of what the machine can do: prefill against the FMA peak, decode against the bandwidth of reading the
// KV.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/attention/attention.h"

namespace choral::kernels {
namespace {

struct Problem {
  int64_t sequences, context, count, heads, kv_heads, head_dim, v_head_dim;
  DType dtype;
  bool values_in_keys = false;
  int64_t layers = 1;  // gone through in turns, each with a cache of its own
};

void run(benchmark::State& state, const Problem& p, CpuLevel level, int threads) {
  if (level > cpu_level()) return state.SkipWithError("this machine or CHORAL_CPU_LEVEL has no such level");
  const int64_t length = p.context + p.count, blocks_each = ceil_div(length, kKvBlockTokens);
  const int64_t blocks = blocks_each * p.sequences * p.layers, rows = p.sequences * p.count;
  auto keys = *AlignedBuffer::allocate(blocks * kv_key_block_bytes(p.dtype, p.kv_heads, p.head_dim));
  auto values = *AlignedBuffer::allocate(p.values_in_keys ? 0 : blocks * kv_value_block_bytes(p.dtype, p.kv_heads, p.v_head_dim));
  const KvCacheView cache{keys.data(), p.values_in_keys ? nullptr : values.data(), p.dtype, blocks, p.kv_heads, p.head_dim,
                          p.v_head_dim};
  ThreadPool pool(threads);
  Arena arena;
  const Context ctx{pool, level, arena};

  std::mt19937 random(1);
  std::vector<int32_t> table(blocks);
  for (int64_t i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(i);
  std::shuffle(table.begin(), table.end(), random);
  std::vector<float> kv(kKvBlockTokens * p.kv_heads * p.head_dim), q(rows * p.heads * p.head_dim),
      out(rows * p.heads * p.v_head_dim);
  for (float& x : kv) x = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  for (float& x : q) x = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  std::vector<int64_t> slots(kKvBlockTokens);
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t i = 0; i < kKvBlockTokens; ++i) slots[i] = b * kKvBlockTokens + i;
    write_kv(ctx, cache, {kv.data(), kKvBlockTokens, p.kv_heads * p.head_dim},
             {kv.data(), kKvBlockTokens, p.values_in_keys ? 0 : p.kv_heads * p.v_head_dim}, slots);
  }
  std::vector<AttentionSequence> sequences;  // of all layers
  for (int64_t s = 0; s < p.sequences * p.layers; ++s) {
    const auto blocks_of = std::span(table).subspan(s * blocks_each, blocks_each);
    sequences.push_back({s % p.sequences * p.count, p.count, p.context, blocks_of});
  }
  const AttentionParams params{p.heads, p.kv_heads, p.head_dim, 1.0f / std::sqrt(static_cast<float>(p.head_dim))};
  const int64_t cols = p.heads * p.head_dim, out_cols = p.heads * p.v_head_dim;
  int64_t layer = 0;
  for (auto _ : state) {
    const auto of_layer = std::span(sequences).subspan(layer * p.sequences, p.sequences);
    paged_attention(ctx, params, {q.data(), rows, cols}, cache, of_layer, {out.data(), rows, out_cols});
    layer = (layer + 1) % p.layers;
  }

  double visible = 0;  // (row, key) pairs
  for (int64_t i = 0; i < p.count; ++i) visible += static_cast<double>((p.context + i + 1) * p.sequences * p.heads);
  using benchmark::Counter;
  const int64_t stored = p.kv_heads * (p.head_dim + (p.values_in_keys ? 0 : p.v_head_dim));
  const int64_t token_bytes = row_bytes(p.dtype, stored) + p.kv_heads * kv_scale_bytes(p.dtype);
  state.counters["FLOP"] = Counter(visible * 2.0 * static_cast<double>(p.head_dim + p.v_head_dim),
                                   Counter::kIsIterationInvariantRate, Counter::kIs1000);
  state.counters["KV_B"] =
      Counter(static_cast<double>(length * p.sequences * token_bytes), Counter::kIsIterationInvariantRate, Counter::kIs1000);
}

void bm_prefill(benchmark::State& state) {
  run(state, {1, 0, 1024, 32, 8, state.range(1), state.range(1), static_cast<DType>(state.range(2))},
      static_cast<CpuLevel>(state.range(0)), 1);
}
void bm_decode(benchmark::State& state) {
  run(state, {32, state.range(1), 1, 32, 8, 64, 64, static_cast<DType>(state.range(2))}, static_cast<CpuLevel>(state.range(0)),
      static_cast<int>(state.range(3)));
}
// Rows of one sequence behind a long context: of SmolLM2-135M, an 8B Llama and Gemma 3 270M. The layers together are more than a
// cache of the CPU holds, as they are in a step.
void bm_behind(benchmark::State& state) {
  constexpr Problem kShapes[] = {
      {1, 0, 0, 9, 3, 64, 64, DType::kF32}, {1, 0, 0, 32, 8, 128, 128, DType::kF32}, {1, 0, 0, 4, 1, 256, 256, DType::kF32}};
  Problem p = kShapes[state.range(1)];
  p.context = state.range(2) - state.range(3);
  p.count = state.range(3);
  p.dtype = static_cast<DType>(state.range(4));
  const int64_t token_bytes = kv_block_bytes(p.dtype, p.kv_heads, p.head_dim, p.v_head_dim) / kKvBlockTokens;
  p.layers = ceil_div(int64_t{192} << 20, token_bytes * state.range(2));
  run(state, p, static_cast<CpuLevel>(state.range(0)), static_cast<int>(state.range(5)));
}
// DeepSeek-V2-Lite's 16 heads: one latent of 512 + 64 for all of them, and beside it a key and a value made for each.
void bm_latent(benchmark::State& state) {
  const bool latent = state.range(2) != 0;
  const int64_t count = state.range(3);
  const Problem absorbed{1, state.range(1) - count, count, 16, 1, 576, 512, DType::kF32, true};
  const Problem expanded{1, state.range(1) - count, count, 16, 16, 192, 128, DType::kF32};
  run(state, latent ? absorbed : expanded, static_cast<CpuLevel>(state.range(0)), static_cast<int>(state.range(4)));
}

constexpr int64_t kF32 = static_cast<int64_t>(DType::kF32), kBF16 = static_cast<int64_t>(DType::kBF16),
                  kF16 = static_cast<int64_t>(DType::kF16), kI8 = static_cast<int64_t>(DType::kI8);
constexpr int64_t kBase = static_cast<int64_t>(CpuLevel::kBase), kAvx2 = static_cast<int64_t>(CpuLevel::kAvx2),
                  kAvx512 = static_cast<int64_t>(CpuLevel::kAvx512);
BENCHMARK(bm_prefill)
    ->ArgNames({"level", "dim", "dtype"})
    ->ArgsProduct({{kBase, kAvx2, kAvx512}, {64, 128}, {kF32, kBF16, kF16, kI8}});
BENCHMARK(bm_decode)
    ->ArgNames({"level", "context", "dtype", "threads"})
    ->ArgsProduct({{kBase, kAvx2, kAvx512}, {512, 4096}, {kF32, kBF16, kF16, kI8}, {1, 2}})
    ->UseRealTime();
BENCHMARK(bm_behind)
    ->ArgNames({"level", "shape", "context", "rows", "dtype", "threads"})
    ->ArgsProduct({{kAvx2, kAvx512}, {0, 1, 2}, {7900}, {1, 64}, {kF32, kBF16, kF16, kI8}, {1, 2}})
    ->UseRealTime();
BENCHMARK(bm_latent)
    ->ArgNames({"level", "context", "latent", "rows", "threads"})
    ->ArgsProduct({{kBase, kAvx2, kAvx512}, {512, 8192}, {0, 1}, {1, 512}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace choral::kernels
