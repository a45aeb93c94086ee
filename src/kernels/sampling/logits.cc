#include "kernels/sampling/logits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sampling/logits.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/activation/activation_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

void soft_cap_row(float* x, int64_t count, float cap) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF c = hn::Set(d, cap);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::Mul(c, tanh_full(hn::Div(hn::LoadU(d, x + i), c))), d, x + i);
  if (i < count) {
    const auto rest = static_cast<size_t>(count - i);
    store_tail(hn::Mul(c, tanh_full(hn::Div(load_tail(x + i, rest), c))), x + i, rest);
  }
}

void scale_row(float* x, int64_t count, float scale) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, scale)), d, x + i);
  for (; i < count; ++i) x[i] *= scale;
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

template <class Row>
void for_each_row_chunk(const Context& ctx, MatrixView<float> x, Row row) {
  const int64_t chunks = ceil_div(x.cols, kMediumTask);
  ctx.pool.parallel_for(x.rows * chunks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t col = i % chunks * kMediumTask;
      row(x.row(i / chunks) + col, std::min(kMediumTask, x.cols - col));
    }
  });
}

}  // namespace

void soft_cap(const Context& ctx, MatrixView<float> x, float cap) {
  CHORAL_CHECK(cap > 0.0f, "a soft cap is positive");
  const auto row = CHORAL_AT_LEVEL(ctx.level, soft_cap_row);
  for_each_row_chunk(ctx, x, [&](float* p, int64_t count) { row(p, count, cap); });
}

void scale_rows(const Context& ctx, MatrixView<float> x, float scale) {
  const auto row = CHORAL_AT_LEVEL(ctx.level, scale_row);
  for_each_row_chunk(ctx, x, [&](float* p, int64_t count) { row(p, count, scale); });
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
