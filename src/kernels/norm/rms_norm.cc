#include "kernels/norm/rms_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/rms_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/norm/rms_norm_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

void norm_only_row(const float* x, const NormRow& norm, float* y) { norm_row(x, norm, y); }

void add_norm_row(const float* x, float* residual, const NormRow& norm, float* y) {
  write_row(NormedRow(residual, norm, sum_of_squares(AddedRow{x, residual}, norm.count)), norm.count, y);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "kernels/highway_level.h"
#include "kernels/norm/norm_row.h"
#include "kernels/task_size.h"

namespace choral::kernels {

void rms_norm(const Context& ctx, MatrixView<const float> x, std::span<const float> w, float eps, MatrixView<float> y,
              std::span<const float> bias) {
  CHORAL_CHECK(x.rows == y.rows && x.cols == y.cols, "x and y of a norm fit");
  const NormRow row = norm_of_row(w, bias, eps, x.cols);
  const auto norm = CHORAL_AT_LEVEL(ctx.level, norm_only_row);
  ctx.pool.parallel_for(x.rows, pieces_per_task(kMediumTask, x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) norm(x.row(i), row, y.row(i));
  });
}

void add_rms_norm(const Context& ctx, MatrixView<const float> x, MatrixView<float> residual, std::span<const float> w, float eps,
                  MatrixView<float> y, std::span<const float> bias) {
  CHORAL_CHECK(x.rows == y.rows && x.cols == y.cols && residual.rows == x.rows && residual.cols == x.cols,
               "x, residual and y of a norm fit");
  const NormRow row = norm_of_row(w, bias, eps, x.cols);
  const auto add_norm = CHORAL_AT_LEVEL(ctx.level, add_norm_row);
  ctx.pool.parallel_for(x.rows, pieces_per_task(kMediumTask, x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) add_norm(x.row(i), residual.row(i), row, y.row(i));
  });
}

void rms_norm_heads(const Context& ctx, MatrixView<float> x, int64_t heads, std::span<const float> w, float eps) {
  const auto head_dim = std::ssize(w);
  const NormRow row = norm_of_row(w, {}, eps, head_dim);
  CHORAL_CHECK(x.cols == heads * head_dim, "heads and w of a head norm fit x");
  const auto norm = CHORAL_AT_LEVEL(ctx.level, norm_only_row);
  ctx.pool.parallel_for(x.rows, pieces_per_task(kMediumTask, x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t h = 0; h < heads; ++h) {
        float* head = x.row(i) + h * head_dim;
        norm(head, row, head);
      }
    }
  });
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
