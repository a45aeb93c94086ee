#include "kernels/gemm/tile_finish.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/tile_finish.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// y[i] = from[i] (+ second[i]) (+ bias[i]) (+ y[i]); what is null is left out. `y` may be `from`.
template <class D>
HWY_ATTR HWY_INLINE void finish_vector(D d, const float* from, const float* second, const float* bias, bool accumulate,
                                       float* y) {
  auto sum = hn::LoadU(d, from);
  if (second != nullptr) sum = hn::Add(sum, hn::LoadU(d, second));
  if (bias != nullptr) sum = hn::Add(sum, hn::LoadU(d, bias));
  if (accumulate) sum = hn::Add(sum, hn::LoadU(d, y));
  hn::StoreU(sum, d, y);
}

void finish_rows(MatrixView<const float> sums, int planes, const float* bias, bool accumulate, MatrixView<float> y) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto at = [](const float* row, int64_t j) { return row == nullptr ? nullptr : row + j; };
  for (int64_t i = 0; i < y.rows; ++i) {
    const float *from = sums.row(i * planes), *second = planes == 2 ? sums.row(i * planes + 1) : nullptr;
    float* to = y.row(i);
    int64_t j = 0;
    for (; j + lanes <= sums.cols; j += lanes) finish_vector(d, from + j, at(second, j), at(bias, j), accumulate, to + j);
    for (; j < sums.cols; ++j) finish_vector(one, from + j, at(second, j), at(bias, j), accumulate, to + j);
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
