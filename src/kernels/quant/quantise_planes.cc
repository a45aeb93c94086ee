#include "kernels/quant/quantise_planes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quant/quantise_planes.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/quant/quantise_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

void row_of_planes(const float* x, int64_t k, QuantiseOptions options, QuantisedBlock* out) {
  if (options.planes == Planes::kOneScale) {
    return quantise_blocks_with_scale(x, k, write_row_and_scale(LoadedRow{x}, k, nullptr), options, out);
  }
  quantise_source(LoadedRow{x}, k, options, out, options.planes == Planes::kTwo ? out + plane_blocks(k) : nullptr, nullptr);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "kernels/highway_level.h"

namespace choral::kernels {
namespace {
constexpr int64_t kElementsPerTask = 8192;  // a few µs: less is not worth waking a thread
}  // namespace

void quantise_row(CpuLevel level, const float* x, int64_t k, QuantiseOptions options, QuantisedBlock* out) {
  CHORAL_AT_LEVEL(level, row_of_planes)(x, k, options, out);
}

void quantise_planes(CpuLevel level, MatrixView<const float> x, QuantiseOptions options, QuantisedBlock* out) {
  const int64_t row_blocks = plane_count(options.planes) * plane_blocks(x.cols);
  for (int64_t row = 0; row < x.rows; ++row) quantise_row(level, x.row(row), x.cols, options, out + row * row_blocks);
}

void quantise_planes(ThreadPool& pool, CpuLevel level, MatrixView<const float> x, QuantiseOptions options, QuantisedBlock* out) {
  const int64_t row_blocks = plane_count(options.planes) * plane_blocks(x.cols);
  pool.parallel_for(x.rows, std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(x.cols, 1)),
                    [&](int64_t begin, int64_t end, int) {
                      quantise_planes(level, x.sub_rows(begin, end - begin), options, out + begin * row_blocks);
                    });
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
