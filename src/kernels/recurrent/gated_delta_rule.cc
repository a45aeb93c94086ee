#include "kernels/recurrent/gated_delta_rule.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrent/gated_delta_rule.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/norm/rms_norm_inl.h"
#include "kernels/recurrent/head_states_inl.h"

#ifndef CHORAL_GATED_DELTA_TOKEN
#define CHORAL_GATED_DELTA_TOKEN
namespace choral::kernels {

// What a block of a state's columns meets in one token. q, k [key_dim]; v, out [columns]
struct DeltaToken {
  const float *q, *k, *v;
  float decay, beta;
  float* out;
};

}  // namespace choral::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

// x = x · scale / √(Σx² + eps)
void norm_head(float* x, int64_t count, float eps, float scale) {
  const F32 d;
  const VF factor = hn::Set(d, scale / std::sqrt(sum_of_squares(LoadedRow{x}, count) + eps));
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), factor), d, x + i);
  if (i < count) store_tail(hn::Mul(load_tail(x + i, count - i), factor), x + i, count - i);
}

// Some of a block's columns.
struct DeltaColumns {
  float* state;
  int64_t key_dim, columns;
  const DeltaToken& t;
  template <class Access>
  HWY_INLINE void operator()(int64_t column, Access access) const {
    const F32 f;
    const VF decay = hn::Set(f, t.decay);
    const auto seen = times(decay, seen_by(t.k, key_dim, StateRows<Access>{state + column, columns, access}));
    const auto delta = times(hn::Set(f, t.beta), minus(access.load(t.v + column), seen));
    const UpdatedRows<Access> rows{state + column, columns, access, t.k, delta, decay};
    access.store(seen_by(t.q, key_dim, rows), t.out + column);
  }
};

void delta_token(float* state, int64_t key_dim, int64_t columns, const DeltaToken& token) {
  for_column_vectors(columns, DeltaColumns{state, key_dim, columns, token});
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/highway_level.h"
#include "kernels/task_size.h"

namespace choral::kernels {
namespace {

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

// What is each row's own: q and k normed, and of each value head e^g and β. [rows, value_heads]
void prepare_rows(const Context& ctx, const DeltaRule& rule, MatrixView<float> qkv, MatrixView<const float> ba,
                  MatrixView<float> decays, MatrixView<float> betas) {
  const auto norm = CHORAL_AT_LEVEL(ctx.level, norm_head);
  const float query_scale = 1.0F / std::sqrt(static_cast<float>(rule.key_dim));
  ctx.pool.parallel_for(qkv.rows, pieces_per_task(kMediumTask, 2 * rule.key_size()), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < rule.key_heads; ++head) {
        float* q = qkv.row(row) + head * rule.key_dim;
        norm(q, rule.key_dim, DeltaRule::kEps, query_scale);
        norm(q + rule.key_size(), rule.key_dim, DeltaRule::kEps, 1);
      }
      const float *b = ba.row(row), *a = b + rule.value_heads;
      for (int64_t head = 0; head < rule.value_heads; ++head) {
        decays.row(row)[head] = std::exp(-rule.decay[head] * softplus(a[head] + rule.dt_bias[head]));
        betas.row(row)[head] = sigmoid(b[head]);
      }
    }
  });
}

}  // namespace

void gated_delta_rule(const Context& ctx, const DeltaRule& rule, StateView states, std::span<const StateRun> runs,
                      MatrixView<float> qkv, MatrixView<const float> ba, MatrixView<float> out) {
  CHORAL_CHECK(qkv.cols == 2 * rule.key_size() + rule.value_size() && ba.cols == 2 * rule.value_heads &&
                   out.cols == rule.value_size() && qkv.rows == ba.rows && qkv.rows == out.rows,
               "a delta rule's matrices fit its heads");
  check_runs(runs, states, qkv.rows);
  const Arena::Mark mark(ctx.scratch);
  const auto of_heads = [&] {
    return MatrixView<float>(ctx.scratch.make<float>(qkv.rows * rule.value_heads).data(), qkv.rows, rule.value_heads);
  };
  const auto decays = of_heads(), betas = of_heads();
  prepare_rows(ctx, rule, qkv, ba, decays, betas);

  const auto run_one = CHORAL_AT_LEVEL(ctx.level, delta_token);
  const int64_t heads_a_key = rule.value_heads / rule.key_heads;
  run_head_states(ctx, rule.states(), states, runs,
                  [&](float* state, int64_t row, int64_t head, int64_t column, int64_t columns) {
                    const int64_t key = head / heads_a_key * rule.key_dim, value = head * rule.value_dim + column;
                    const float* const x = qkv.row(row);
                    run_one(state, rule.key_dim, columns,
                            {.q = x + key,
                             .k = x + rule.key_size() + key,
                             .v = x + 2 * rule.key_size() + value,
                             .decay = decays.row(row)[head],
                             .beta = betas.row(row)[head],
                             .out = out.row(row) + value});
                  });
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
