// Each fused kernel against the same work as separate kernels, each of which is its own pass over the rows and its own call to
// the pool, in one process: the two are timed in turns and the row says the medians' ratio. rows 32 is a decode step, 512 a
// prefill.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "base/aligned_buffer.h"
#include "kernels/activation/activation.h"
#include "kernels/fused/moe_gating.h"
#include "kernels/fused/norm_quant.h"
#include "kernels/fused/qk_norm_rope.h"
#include "kernels/fused/swiglu_quant.h"
#include "kernels/gemm/gemm_quant.h"
#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/quant/row_quant.h"

namespace choral::kernels {
namespace {

constexpr int64_t kCols = 2048, kInter = 8192;

struct Machine {
  ThreadPool pool{2};
  Arena arena;
  Context ctx() { return {pool, cpu_level(), arena}; }
};

double microseconds(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Times the two in turns; the benchmark's own time is that of the fused one.
void compare(benchmark::State& state, const std::function<void()>& fused, const std::function<void()>& composed) {
  std::vector<double> fused_us, composed_us;
  for (int warm = 0; warm < 3; ++warm) fused(), composed();
  for (auto _ : state) {
    fused_us.push_back(microseconds(fused));
    composed_us.push_back(microseconds(composed));
    state.SetIterationTime(fused_us.back() * 1e-6);
  }
  state.counters["fused_us"] = median(fused_us);
  state.counters["composed_us"] = median(composed_us);
  state.counters["ratio"] = median(composed_us) / median(fused_us);
}

constexpr RowForm kDynamic{.kind = RowForm::Kind::kInt8};
constexpr RowForm kPlanes{.kind = RowForm::Kind::kPlanes, .planes = {8, false}};

struct NormCase {
  int64_t rows;
  Machine machine;
  std::vector<float> x, w, y;
  QuantisedRows quantised;

  explicit NormCase(int64_t r, const RowForm& form = kPlanes)
      : rows(r), x(gaussian(r * kCols, 1)), w(gaussian(kCols, 3)), y(x.size()), quantised(machine.arena, form, r, kCols) {}
  MatrixView<float> view(std::vector<float>& v) const { return {v.data(), rows, kCols}; }
};

void bm_rms_norm_quantise(benchmark::State& state, const RowForm& form) {
  NormCase c(state.range(0), form);
  const Context ctx = c.machine.ctx();
  compare(
      state, [&] { rms_norm_quantise(ctx, c.view(c.x), c.w, 1e-5f, c.quantised); },
      [&] {
        rms_norm(ctx, c.view(c.x), c.w, 1e-5f, c.view(c.y));
        quantise_rows(ctx, c.view(c.y), c.quantised);
      });
}
void bm_rms_norm_planes(benchmark::State& state) { bm_rms_norm_quantise(state, kPlanes); }
void bm_rms_norm_dynamic(benchmark::State& state) { bm_rms_norm_quantise(state, kDynamic); }

struct AttentionCase {
  static constexpr int64_t kHeads = 32, kKvHeads = 8, kDim = 128, kWidth = (kHeads + 2 * kKvHeads) * kDim;
  Machine machine;
  int64_t rows;
  std::vector<float> qkv, weight = std::vector<float>(kDim, 1.0f);
  std::vector<int32_t> positions;
  std::vector<int64_t> slots;
  RotaryTable table;
  AlignedBuffer keys, values;
  KvCacheView cache;

  explicit AttentionCase(int64_t r) : rows(r), qkv(gaussian(r * kWidth, 1)) {
    // A decode step's rows lie in different blocks, a prefill's in neighbouring slots.
    for (int64_t t = 0; t < r; ++t) slots.push_back(r <= 32 ? t * 32 + 7 : t), positions.push_back(static_cast<int32_t>(t));
    table = *RotaryTable::make({.head_dim = kDim, .rotary_dim = kDim, .max_positions = 1024});
    keys = *AlignedBuffer::allocate(32 * kv_key_block_bytes(DType::kBF16, kKvHeads, kDim));
    values = *AlignedBuffer::allocate(32 * kv_value_block_bytes(DType::kBF16, kKvHeads, kDim));
    cache = {keys.data(), values.data(), DType::kBF16, 32, kKvHeads, kDim, kDim};
  }
  MatrixView<float> columns(int64_t head, int64_t heads) {
    return MatrixView<float>(qkv.data(), rows, kWidth).sub_cols(head * kDim, heads * kDim);
  }
  MatrixView<float> q() { return columns(0, kHeads); }
  MatrixView<float> k() { return columns(kHeads, kKvHeads); }
  MatrixView<float> v() { return columns(kHeads + kKvHeads, kKvHeads); }
};

void bm_qk_norm_rope(benchmark::State& state) {
  AttentionCase c(state.range(0));
  const Context ctx = c.machine.ctx();
  compare(
      state,
      [&] {
        qk_norm_rope(ctx, {c.weight, c.weight, 1e-6f}, c.table, c.positions, c.q(), c.kHeads, c.k(), c.kKvHeads);
      },
      [&] {
        rms_norm_heads(ctx, c.q(), c.kHeads, c.weight, 1e-6f);
        rms_norm_heads(ctx, c.k(), c.kKvHeads, c.weight, 1e-6f);
        apply_rotary(ctx, c.table, c.positions, c.q(), c.kHeads, c.k(), c.kKvHeads);
      });
}

void bm_rope_write_kv(benchmark::State& state) {
  AttentionCase c(state.range(0));
  const Context ctx = c.machine.ctx();
  compare(
      state, [&] { rope_write_kv(ctx, c.table, c.positions, c.q(), c.kHeads, c.k(), c.v(), c.cache, c.slots); },
      [&] {
        apply_rotary(ctx, c.table, c.positions, c.q(), c.kHeads, c.k(), c.kKvHeads);
        write_kv(ctx, c.cache, c.k(), c.v(), c.slots);
      });
}

struct SwigluCase {
  int64_t rows;
  Machine machine;
  std::vector<float> x, y;

  explicit SwigluCase(int64_t r) : rows(r), x(gaussian(r * 2 * kInter, 1)), y(r * kInter) {}
  MatrixView<const float> x_view() const { return {x.data(), rows, 2 * kInter}; }
  MatrixView<float> y_view() { return {y.data(), rows, kInter}; }
};

void bm_silu_and_mul_quantise(benchmark::State& state, const RowForm& form) {
  SwigluCase c(state.range(0));
  const Context ctx = c.machine.ctx();
  const QuantisedRows quantised(c.machine.arena, form, c.rows, kInter);
  compare(
      state, [&] { silu_and_mul_quantise(ctx, c.x_view(), quantised); },
      [&] {
        silu_and_mul(ctx, c.x_view(), c.y_view());
        quantise_rows(ctx, c.y_view(), quantised);
      });
}
void bm_silu_and_mul_planes(benchmark::State& state) { bm_silu_and_mul_quantise(state, kPlanes); }
void bm_silu_and_mul_dynamic(benchmark::State& state) { bm_silu_and_mul_quantise(state, kDynamic); }

void bm_moe_gating(benchmark::State& state) {
  const int64_t rows = state.range(0), experts = 256;
  Machine machine;
  const Context ctx = machine.ctx();
  const auto logits = gaussian(rows * experts, 1), bias = gaussian(experts, 2);
  const MoeGating gating{.scoring = GateScoring::kSigmoid,
                         .selection_bias = bias,
                         .groups = 8,
                         .top_groups = 4,
                         .group_score = GroupScore::kTopTwoSum,
                         .top_k = 8,
                         .renormalise = true,
                         .routed_scaling = 2.5f};
  std::vector<int32_t> ids(rows * 8);
  std::vector<float> weights(rows * 8), score(logits.size()), selection(logits.size());
  const auto each_row = [&](auto body) {
    ctx.pool.parallel_for(rows, 16, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) body(t);
    });
  };
  compare(
      state,
      [&] {
        moe_gating_top_k(ctx, {logits.data(), rows, experts}, gating, {ids.data(), rows, 8}, {weights.data(), rows, 8});
      },
      [&] {  // scores; selection; groups; top k; weights
        each_row([&](int64_t t) {
          for (int64_t i = t * experts; i < (t + 1) * experts; ++i) score[i] = 1.0f / (1.0f + std::exp(-logits[i]));
        });
        each_row([&](int64_t t) {
          for (int64_t i = 0; i < experts; ++i) selection[t * experts + i] = score[t * experts + i] + bias[i];
        });
        each_row([&](int64_t t) {
          float group[8], sorted[8];
          for (int64_t g = 0; g < 8; ++g) {
            float members[32];
            std::copy_n(selection.begin() + t * experts + g * 32, 32, members);
            std::partial_sort(members, members + 2, members + 32, std::greater<>());
            group[g] = sorted[g] = members[0] + members[1];
          }
          std::sort(std::begin(sorted), std::end(sorted), std::greater<>());
          for (int64_t i = 0; i < experts; ++i) {
            if (group[i / 32] < sorted[3]) selection[t * experts + i] = -1e30f;
          }
        });
        each_row([&](int64_t t) {
          int32_t order[256];
          for (int32_t i = 0; i < 256; ++i) order[i] = i;
          const float* s = selection.data() + t * experts;
          std::partial_sort(order, order + 8, order + 256, [s](int32_t a, int32_t b) { return s[a] > s[b]; });
          std::copy_n(order, 8, ids.begin() + t * 8);
        });
        each_row([&](int64_t t) {
          float sum = 1e-20f;
          for (int64_t i = t * 8; i < t * 8 + 8; ++i) sum += score[t * experts + ids[i]];
          for (int64_t i = t * 8; i < t * 8 + 8; ++i) weights[i] = score[t * experts + ids[i]] / sum * 2.5f;
        });
      });
}

// A quantised product of a norm: what the planes are for.
void bm_norm_and_quantised_gemm(benchmark::State& state) {
  NormCase c(state.range(0));
  const Context ctx = c.machine.ctx();
  const int64_t n = 512;
  const auto data = random_quant_matrix(DType::kQ4_0, n, kCols, 1);
  const WeightRows part{data.view()};
  const auto w = *pack_quantised({&part, 1}, ctx.pool);
  std::vector<float> out(c.rows * n);
  const QuantisedRows quantised(c.machine.arena, *w->quantised_input(ctx.level), c.rows, kCols);
  compare(
      state,
      [&] {
        rms_norm_quantise(ctx, c.view(c.x), c.w, 1e-5f, quantised);
        w->multiply_quantised(ctx, quantised, {}, {out.data(), c.rows, n});
      },
      [&] {
        rms_norm(ctx, c.view(c.x), c.w, 1e-5f, c.view(c.y));
        w->multiply(ctx, c.view(c.y), {}, {out.data(), c.rows, n});
      });
}

#define CHORAL_FUSED_BENCH(name) \
  BENCHMARK(name)->ArgName("rows")->Arg(32)->Arg(512)->UseManualTime()->Unit(benchmark::kMicrosecond)
CHORAL_FUSED_BENCH(bm_rms_norm_planes);
CHORAL_FUSED_BENCH(bm_rms_norm_dynamic);
CHORAL_FUSED_BENCH(bm_norm_and_quantised_gemm);
CHORAL_FUSED_BENCH(bm_qk_norm_rope);
CHORAL_FUSED_BENCH(bm_rope_write_kv);
CHORAL_FUSED_BENCH(bm_silu_and_mul_planes);
CHORAL_FUSED_BENCH(bm_silu_and_mul_dynamic);
CHORAL_FUSED_BENCH(bm_moe_gating);

}  // namespace
}  // namespace choral::kernels
