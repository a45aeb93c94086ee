#include "kernels/activation/activation.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation/activation.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/activation/activation_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

void gate_row(Activation f, const float* gate, const float* up, float* y, int64_t count) {
  switch (f) {
    case Activation::kSilu: return write_row(GatedRow<Silu>{gate, up}, count, y);
    case Activation::kGelu: return write_row(GatedRow<Gelu>{gate, up}, count, y);
    case Activation::kGeluTanh: return write_row(GatedRow<GeluTanh>{gate, up}, count, y);
    case Activation::kSigmoid: return write_row(GatedRow<Sigmoid>{gate, up}, count, y);
  }
}

void clamped_swiglu_row(const ClampedSwiglu& form, const float* x, float* y, int64_t count) {
  write_row(ClampedSwigluRow{x, form.alpha, form.limit}, count, y);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "base/checked_math.h"
#include "kernels/highway_level.h"
#include "kernels/task_size.h"

namespace choral::kernels {
namespace {

// Calls run(row, first column, columns) for pieces of all rows, divided over the threads.
template <class Run>
void for_each_piece(const Context& ctx, int64_t rows, int64_t cols, Run run) {
  const int64_t chunks = ceil_div(cols, kHeavyTask);
  ctx.pool.parallel_for(rows * chunks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t col = i % chunks * kHeavyTask;
      run(i / chunks, col, std::min(kHeavyTask, cols - col));
    }
  });
}

}  // namespace

void activation_and_mul(const Context& ctx, Activation f, MatrixView<const float> gate, MatrixView<const float> up,
                        MatrixView<float> y) {
  CHORAL_CHECK(gate.rows == y.rows && up.rows == y.rows && gate.cols == y.cols && up.cols == y.cols,
               "gate, up and y of a gated activation have one shape");
  const auto row = CHORAL_AT_LEVEL(ctx.level, gate_row);
  for_each_piece(ctx, y.rows, y.cols, [&](int64_t t, int64_t col, int64_t count) {
    row(f, gate.row(t) + col, up.row(t) + col, y.row(t) + col, count);
  });
}

void activation_and_mul(const Context& ctx, Activation f, MatrixView<const float> x, MatrixView<float> y) {
  CHORAL_CHECK(x.cols == 2 * y.cols, "x of a gated activation is twice as wide as y");
  activation_and_mul(ctx, f, x.sub_cols(0, y.cols), x.sub_cols(y.cols, y.cols), y);
}

void silu_and_mul(const Context& ctx, MatrixView<const float> x, MatrixView<float> y) {
  activation_and_mul(ctx, Activation::kSilu, x, y);
}

void gelu_and_mul(const Context& ctx, MatrixView<const float> x, MatrixView<float> y) {
  activation_and_mul(ctx, Activation::kGelu, x, y);
}

void gelu_tanh_and_mul(const Context& ctx, MatrixView<const float> x, MatrixView<float> y) {
  activation_and_mul(ctx, Activation::kGeluTanh, x, y);
}

void swigluoai_and_mul(const Context& ctx, const ClampedSwiglu& form, MatrixView<const float> x, MatrixView<float> y) {
  CHORAL_CHECK(x.rows == y.rows && x.cols == 2 * y.cols, "x of a gated activation is twice as wide as y");
  const auto row = CHORAL_AT_LEVEL(ctx.level, clamped_swiglu_row);
  for_each_piece(ctx, y.rows, y.cols,
                 [&](int64_t t, int64_t col, int64_t count) { row(form, x.row(t) + 2 * col, y.row(t) + col, count); });
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
