#include "kernels/quant/row_quant.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quant/row_quant.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

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

// Clamped as floats first: a quotient may be beyond every integer.
HWY_INLINE VI static_quotient(VF x, VF scale, VF least, VF largest, VI offset) {
  return hn::Add(hn::NearestInt(hn::Min(hn::Max(hn::Div(x, scale), least), largest)), offset);
}

float static_quant_row(const float* x, int64_t count, StaticQuant quant, int8_t* q) {
  const F32 d;
  const I8 d8;
  if (std::isnan(write_row_and_scale(LoadedRow{x}, count, nullptr))) {  // not finite
    std::memset(q, 0, static_cast<size_t>(count));
    return std::numeric_limits<float>::quiet_NaN();
  }
  const VF scale = hn::Set(d, quant.scale), least = hn::Set(d, static_cast<float>(-128 - quant.offset)),
           largest = hn::Set(d, static_cast<float>(127 - quant.offset));
  const VI offset = hn::Set(I32(), quant.offset);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::DemoteTo(d8, static_quotient(hn::LoadU(d, x + i), scale, least, largest, offset)), d8, q + i);
  }
  if (i < count) {
    const auto rest = static_cast<size_t>(count - i);
    alignas(64) int8_t buffer[HWY_MAX_BYTES];
    hn::StoreU(hn::DemoteTo(d8, static_quotient(load_tail(x + i, rest), scale, least, largest, offset)), d8, buffer);
    std::memcpy(q + i, buffer, rest);
  }
  return 1.0f;
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

void quant_rows(CpuLevel level, MatrixView<const float> x, RowQuant quant, MatrixView<int8_t> q, std::span<float> scale) {
  if (quant.fixed) {
    const auto quant_one = CHORAL_AT_LEVEL(level, static_quant_row);
    for (int64_t i = 0; i < x.rows; ++i) scale[i] = quant_one(x.row(i), x.cols, *quant.fixed, q.row(i));
  } else {
    const auto quant_one = CHORAL_AT_LEVEL(level, quant_row);
    for (int64_t i = 0; i < x.rows; ++i) scale[i] = quant_one(x.row(i), x.cols, q.row(i));
  }
}

void quant_rows(const Context& ctx, MatrixView<const float> x, RowQuant quant, MatrixView<int8_t> q, std::span<float> scale) {
  CHORAL_CHECK(q.rows == x.rows && q.cols == x.cols && std::ssize(scale) == x.rows,
               "q is of x's shape, with a scale for each row");
  ctx.pool.parallel_for(x.rows, pieces_per_task(kLightTask, x.cols), [&](int64_t begin, int64_t end, int) {
    const int64_t rows = end - begin;
    quant_rows(ctx.level, x.sub_rows(begin, rows), quant, q.sub_rows(begin, rows), scale.subspan(begin, rows));
  });
}

void dynamic_quant_rows(const Context& ctx, MatrixView<const float> x, MatrixView<int8_t> q, std::span<float> scale) {
  quant_rows(ctx, x, {}, q, scale);
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
