#include "kernels/quant/row_quant.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quant/row_quant.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/quant/quantise_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

float quant_row(const float* x, int64_t count, int8_t* q) {
  const float scale = write_row_and_scale(LoadedRow{x}, count, nullptr);
  quantise_with_scale(x, count, scale, q);
  return scale;
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
void dynamic_quant_rows(const Context& ctx, MatrixView<const float> x, MatrixView<int8_t> q, std::span<float> scale) {
  CHORAL_CHECK(q.rows == x.rows && q.cols == x.cols && std::ssize(scale) == x.rows,
               "q is of x's shape, with a scale for each row");
  const auto quant = CHORAL_AT_LEVEL(ctx.level, quant_row);
  ctx.pool.parallel_for(x.rows, pieces_per_task(kLightTask, x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) scale[i] = quant(x.row(i), x.cols, q.row(i));
  });
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
