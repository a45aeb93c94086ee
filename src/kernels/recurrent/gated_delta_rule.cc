#include "kernels/recurrent/gated_delta_rule.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrent/gated_delta_rule.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/norm/rms_norm_inl.h"

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

struct WholeVector {
  HWY_INLINE VF load(const float* p) const { return hn::LoadU(F32(), p); }
  HWY_INLINE void store(VF v, float* p) const { hn::StoreU(v, F32(), p); }
};
struct PartOfVector {
  size_t count;
  HWY_INLINE VF load(const float* p) const { return load_tail(p, count); }
  HWY_INLINE void store(VF v, float* p) const { store_tail(v, p, count); }
};

// Four sums that take turns, so that none waits for itself.
struct Chains {
  VF a, b, c, d;
  HWY_INLINE VF sum() const { return hn::Add(hn::Add(a, b), hn::Add(c, d)); }
};

// Of one vector of a block's columns what the state gives a key or query: Σ x_k · row k. state [key_dim, stride]
template <class Access>
HWY_INLINE VF seen_by(const float* x, const float* state, int64_t key_dim, int64_t stride, Access access) {
  const F32 f;
  const VF zero = hn::Zero(f);
  Chains sums{zero, zero, zero, zero};
  int64_t k = 0;
  for (; k + 4 <= key_dim; k += 4) {
    const float* row = state + k * stride;
    sums.a = hn::MulAdd(hn::Set(f, x[k]), access.load(row), sums.a);
    sums.b = hn::MulAdd(hn::Set(f, x[k + 1]), access.load(row + stride), sums.b);
    sums.c = hn::MulAdd(hn::Set(f, x[k + 2]), access.load(row + 2 * stride), sums.c);
    sums.d = hn::MulAdd(hn::Set(f, x[k + 3]), access.load(row + 3 * stride), sums.d);
  }
  for (; k < key_dim; ++k) {
    const VF sum = hn::MulAdd(hn::Set(f, x[k]), access.load(state + k * stride), sums.a);
    sums = {sums.b, sums.c, sums.d, sum};
  }
  return sums.sum();
}

// The same of the state that follows, S = decay · S + k δᵀ, which is written on the way.
struct Update {
  const float* keys;
  VF delta, decay;
  template <class Access>
  HWY_INLINE VF row(float* at, int64_t k, Access access) const {
    const VF next = hn::MulAdd(hn::Set(F32(), keys[k]), delta, hn::Mul(decay, access.load(at)));
    access.store(next, at);
    return next;
  }
};

template <class Access>
HWY_INLINE VF updated_and_seen_by(const float* x, float* state, int64_t key_dim, int64_t stride, const Update& update,
                                  Access access) {
  const F32 f;
  const VF zero = hn::Zero(f);
  Chains sums{zero, zero, zero, zero};
  int64_t k = 0;
  for (; k + 4 <= key_dim; k += 4) {
    float* row = state + k * stride;
    sums.a = hn::MulAdd(hn::Set(f, x[k]), update.row(row, k, access), sums.a);
    sums.b = hn::MulAdd(hn::Set(f, x[k + 1]), update.row(row + stride, k + 1, access), sums.b);
    sums.c = hn::MulAdd(hn::Set(f, x[k + 2]), update.row(row + 2 * stride, k + 2, access), sums.c);
    sums.d = hn::MulAdd(hn::Set(f, x[k + 3]), update.row(row + 3 * stride, k + 3, access), sums.d);
  }
  for (; k < key_dim; ++k) {
    const VF sum = hn::MulAdd(hn::Set(f, x[k]), update.row(state + k * stride, k, access), sums.a);
    sums = {sums.b, sums.c, sums.d, sum};
  }
  return sums.sum();
}

// One vector of a block's columns; `state` begins with it.
template <class Access>
HWY_INLINE void run_columns(float* state, int64_t key_dim, int64_t stride, int64_t column, const DeltaToken& t, Access access) {
  const F32 f;
  const VF decay = hn::Set(f, t.decay);
  const VF seen = hn::Mul(decay, seen_by(t.k, state, key_dim, stride, access));
  const VF delta = hn::Mul(hn::Set(f, t.beta), hn::Sub(access.load(t.v + column), seen));
  access.store(updated_and_seen_by(t.q, state, key_dim, stride, Update{t.k, delta, decay}, access), t.out + column);
}

void run_token(float* state, int64_t key_dim, int64_t columns, const DeltaToken& token) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t column = 0;
  for (; column + lanes <= columns; column += lanes) run_columns(state + column, key_dim, columns, column, token, WholeVector());
  if (column < columns) {
    run_columns(state + column, key_dim, columns, column, token, PartOfVector{static_cast<size_t>(columns - column)});
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/checked_math.h"
#include "kernels/highway_level.h"
#include "kernels/task_size.h"

namespace choral::kernels {
namespace {

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }
// Beyond 20 it is x to the last bit.
float softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

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

  const auto run_one = CHORAL_AT_LEVEL(ctx.level, run_token);
  const int64_t blocks = ceil_div(rule.value_dim, DeltaRule::kBlockColumns), heads_a_key = rule.value_heads / rule.key_heads;
  const auto run_block = [&](const StateRun& run, int64_t head, int64_t column) {
    const int64_t columns = rule.block_columns(column), begin = rule.block_begin(head, column);
    float* state = states.at(run.to) + begin;
    if (run.from == kNoState) {
      std::fill_n(state, rule.key_dim * columns, 0.0F);
    } else if (run.from != run.to) {
      std::copy_n(states.at(run.from) + begin, rule.key_dim * columns, state);
    }
    const int64_t key = head / heads_a_key * rule.key_dim, value = head * rule.value_dim + column;
    for (int64_t row = run.first_row; row < run.first_row + run.row_count; ++row) {
      const float* x = qkv.row(row);
      run_one(state, rule.key_dim, columns,
              {.q = x + key,
               .k = x + rule.key_size() + key,
               .v = x + 2 * rule.key_size() + value,
               .decay = decays.row(row)[head],
               .beta = betas.row(row)[head],
               .out = out.row(row) + value});
    }
  };
  const int64_t pieces = rule.value_heads * blocks;
  ctx.pool.parallel_for(pieces * std::ssize(runs), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task / pieces, piece = task % pieces;
      if (first > 0 && runs_of_sequence(runs, first - 1) > 1) continue;  // goes with the one before
      for (const StateRun& run : runs.subspan(first, runs_of_sequence(runs, first))) {
        run_block(run, piece / blocks, piece % blocks * DeltaRule::kBlockColumns);
      }
    }
  });
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
