#include "kernels/recurrent/selective_scan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrent/selective_scan.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/recurrent/head_states_inl.h"

#ifndef CHORAL_SCAN_TOKEN
#define CHORAL_SCAN_TOKEN
namespace choral::kernels {

// What a block of a state's columns meets in one token. b, c [state_dim]; x, out [columns]
struct ScanToken {
  const float *x, *b, *c;
  float step, decay, skip;
  float* out;
};

}  // namespace choral::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

// Some of a block's columns.
struct ScanColumns {
  float* state;
  int64_t state_dim, columns;
  const ScanToken& t;
  template <class Access>
  HWY_INLINE void operator()(int64_t column, Access access) const {
    const F32 f;
    const auto x = access.load(t.x + column), delta = times(hn::Set(f, t.step), x);
    const UpdatedRows<Access> rows{state + column, columns, access, t.b, delta, hn::Set(f, t.decay)};
    access.store(times_plus(hn::Set(f, t.skip), x, seen_by(t.c, state_dim, rows)), t.out + column);
  }
};

void scan_token(float* state, int64_t state_dim, int64_t columns, const ScanToken& token) {
  for_column_vectors(columns, ScanColumns{state, state_dim, columns, token});
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

// Each row's own: of each head Δ and e^(-decay·Δ). [rows, heads]
void prepare_steps(const Context& ctx, const SelectiveScan& scan, MatrixView<const float> dt, MatrixView<float> steps,
                   MatrixView<float> decays) {
  ctx.pool.parallel_for(dt.rows, pieces_per_task(kMediumTask, 16 * scan.heads), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < scan.heads; ++head) {
        const float step = std::clamp(softplus(dt.row(row)[head] + scan.dt_bias[head]), scan.least_step, scan.most_step);
        steps.row(row)[head] = step;
        decays.row(row)[head] = std::exp(-scan.decay[head] * step);
      }
    }
  });
}

}  // namespace

void selective_scan(const Context& ctx, const SelectiveScan& scan, StateView states, std::span<const StateRun> runs,
                    MatrixView<const float> xbc, MatrixView<const float> dt, MatrixView<float> out) {
  CHORAL_CHECK(xbc.cols == scan.value_size() + 2 * scan.group_size() && dt.cols == scan.heads && out.cols == scan.value_size() &&
                   xbc.rows == dt.rows && xbc.rows == out.rows,
               "a scan's matrices fit its heads");
  check_runs(runs, states, xbc.rows);
  const Arena::Mark mark(ctx.scratch);
  const auto of_heads = [&] {
    return MatrixView<float>(ctx.scratch.make<float>(xbc.rows * scan.heads).data(), xbc.rows, scan.heads);
  };
  const auto steps = of_heads(), decays = of_heads();
  prepare_steps(ctx, scan, dt, steps, decays);

  const auto run_one = CHORAL_AT_LEVEL(ctx.level, scan_token);
  const int64_t heads_a_group = scan.heads / scan.groups;
  run_head_states(ctx, scan.states(), states, runs,
                  [&](float* state, int64_t row, int64_t head, int64_t column, int64_t columns) {
                    const float* const x = xbc.row(row);
                    const float* const b = x + scan.value_size() + head / heads_a_group * scan.state_dim;
                    const int64_t value = head * scan.head_dim + column;
                    run_one(state, scan.state_dim, columns,
                            {.x = x + value,
                             .b = b,
                             .c = b + scan.group_size(),
                             .step = steps.row(row)[head],
                             .decay = decays.row(row)[head],
                             .skip = scan.skip[head],
                             .out = out.row(row) + value});
                  });
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
