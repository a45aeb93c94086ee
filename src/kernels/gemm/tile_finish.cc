#include "kernels/gemm/tile_finish.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/tile_finish.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/row_source_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

// Sums (+ those of the second plane) (+ bias) (+ old y); what is null is left out.
struct FinishedRow {
  const float *sums, *second, *bias, *old;
  HWY_INLINE VF full(int64_t i) const {
    return add([i](const float* x) HWY_ATTR { return hn::LoadU(F32(), x + i); });
  }
  HWY_INLINE VF tail(int64_t i, size_t rest) const {
    return add([i, rest](const float* x) HWY_ATTR { return load_tail(x + i, rest); });
  }
  template <class Load>
  HWY_INLINE VF add(const Load& load) const {
    VF sum = load(sums);
    if (second != nullptr) sum = hn::Add(sum, load(second));
    if (bias != nullptr) sum = hn::Add(sum, load(bias));
    if (old != nullptr) sum = hn::Add(sum, load(old));
    return sum;
  }
};

// `y` may be `sums`.
void finish_rows(MatrixView<const float> sums, int planes, const float* bias, bool accumulate, MatrixView<float> y) {
  for (int64_t i = 0; i < y.rows; ++i) {
    float* out = y.row(i);
    const float* second = planes == 2 ? sums.row(i * planes + 1) : nullptr;
    write_row(FinishedRow{sums.row(i * planes), second, bias, accumulate ? out : nullptr}, sums.cols, out);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/highway_level.h"

namespace choral::kernels {

void finish_tile(CpuLevel level, MatrixView<float> sums, int planes, int64_t col, const Epilogue& epilogue, MatrixView<float> y) {
  const auto finish = CHORAL_AT_LEVEL(level, finish_rows);
  const MatrixView<float> target = y.sub_rows(0, sums.rows / planes).sub_cols(col, sums.cols);
  if (epilogue.product_hook != nullptr) {
    const MatrixView<float> product{sums.data, target.rows, sums.cols, planes * sums.stride};
    if (planes > 1) finish(sums, planes, nullptr, false, product);
    (*epilogue.product_hook)(epilogue.row, epilogue.col + col, product);
    sums = product;
    planes = 1;
  }
  finish(sums, planes, epilogue.bias == nullptr ? nullptr : epilogue.bias + col, epilogue.accumulate, target);
  if (epilogue.result_hook != nullptr) (*epilogue.result_hook)(epilogue.row, epilogue.col + col, target);
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
