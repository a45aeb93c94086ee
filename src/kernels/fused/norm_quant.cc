#include "kernels/fused/norm_quant.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused/norm_quant.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/norm/rms_norm_inl.h"
#include "kernels/quant/quantise_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

// x is null for a norm without an addition; then `row` is what is normed.
NormedRow normed_row(const float* x, float* residual, const float* row, const float* w, float eps, NormWeight form,
                     int64_t count) {
  const float squares = x == nullptr ? sum_of_squares(LoadedRow{row}, count) : sum_of_squares(AddedRow{x, residual}, count);
  return {row, w, squares, count, eps, form};
}

// y [count] is written: the row where it is wanted, else scratch.
float dynamic_quant_row(const float* x, float* residual, const float* w, float eps, NormWeight form, int64_t count, float* y,
                        int8_t* q) {
  const float scale = write_row_and_scale(normed_row(x, residual, residual, w, eps, form, count), count, y);
  quantise_with_scale(y, count, scale, q);
  return scale;
}

void planes_row(const float* x, float* residual, const float* row, const float* w, float eps, NormWeight form, int64_t count,
                QuantiseOptions options, QuantisedBlock* coarse, float* y) {
  quantise_source(normed_row(x, residual, row, w, eps, form, count), count, options, coarse, coarse + count / 32, y);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "kernels/highway_level.h"
#include "kernels/task_size.h"

namespace choral::kernels {
namespace {

bool wanted(MatrixView<float> y) { return y.data != nullptr; }

void check_shapes(MatrixView<const float> x, std::span<const float> w, MatrixView<float> y) {
  CHORAL_CHECK(std::ssize(w) == x.cols && (!wanted(y) || (y.rows == x.rows && y.cols == x.cols)), "x, y and w of a norm fit");
}

}  // namespace

void add_rms_norm_dynamic_quant(const Context& ctx, MatrixView<const float> x, MatrixView<float> residual,
                                std::span<const float> w, float eps, MatrixView<int8_t> q, std::span<float> scale,
                                MatrixView<float> y, NormWeight form) {
  check_shapes(x, w, y);
  CHORAL_CHECK(
      residual.rows == x.rows && residual.cols == x.cols && q.rows == x.rows && q.cols == x.cols && std::ssize(scale) == x.rows,
      "x, residual, q and scale of a norm fit");
  const Arena::Mark mark(ctx.scratch);
  const int64_t cols = x.cols;
  const auto scratch = ctx.scratch.make<float>(wanted(y) ? 0 : static_cast<size_t>(ctx.pool.size() * cols));
  const auto row = CHORAL_AT_LEVEL(ctx.level, dynamic_quant_row);
  ctx.pool.parallel_for(x.rows, pieces_per_task(kMediumTask, cols), [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) {
      float* floats = wanted(y) ? y.row(i) : scratch.data() + thread * cols;
      scale[i] = row(x.row(i), residual.row(i), w.data(), eps, form, cols, floats, q.row(i));
    }
  });
}

void add_rms_norm_quantise(const Context& ctx, MatrixView<const float> x, MatrixView<float> residual, std::span<const float> w,
                           float eps, QuantiseOptions options, QuantisedBlock* planes, MatrixView<float> y, NormWeight form) {
  check_shapes(x, w, y);
  CHORAL_CHECK(residual.rows == x.rows && residual.cols == x.cols && x.cols % 32 == 0,
               "x and residual fit, and their rows are whole blocks");
  const auto row = CHORAL_AT_LEVEL(ctx.level, planes_row);
  ctx.pool.parallel_for(x.rows, pieces_per_task(kMediumTask, x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      row(x.row(i), residual.row(i), residual.row(i), w.data(), eps, form, x.cols, options, planes + 2 * i * (x.cols / 32),
          wanted(y) ? y.row(i) : nullptr);
    }
  });
}

void rms_norm_quantise(const Context& ctx, MatrixView<const float> x, std::span<const float> w, float eps,
                       QuantiseOptions options, QuantisedBlock* planes, MatrixView<float> y, NormWeight form) {
  check_shapes(x, w, y);
  CHORAL_CHECK(x.cols % 32 == 0, "rows are whole blocks");
  const auto row = CHORAL_AT_LEVEL(ctx.level, planes_row);
  ctx.pool.parallel_for(x.rows, pieces_per_task(kMediumTask, x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      row(nullptr, nullptr, x.row(i), w.data(), eps, form, x.cols, options, planes + 2 * i * (x.cols / 32),
          wanted(y) ? y.row(i) : nullptr);
    }
  });
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
