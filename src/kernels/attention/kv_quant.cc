#include "kernels/attention/kv_quant.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/kv_quant.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/quant/quantise_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

float quantise_strided(const float* x, int64_t count, int8_t* q, int64_t stride) {
  const float scale = write_row_and_scale(LoadedRow{x}, count, nullptr);
  if (stride == 1) {
    quantise_with_scale(x, count, scale, q);
    return scale;
  }
  constexpr int64_t kPiece = 256;
  int8_t piece[kPiece];
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t size = std::min(kPiece, count - begin);
    quantise_with_scale(x + begin, size, scale, piece);
    for (int64_t i = 0; i < size; ++i) q[(begin + i) * stride] = piece[i];
  }
  return scale;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/highway_level.h"

namespace choral::kernels {

QuantiseKv* quantise_kv(CpuLevel level) { return CHORAL_AT_LEVEL(level, quantise_strided); }

}  // namespace choral::kernels
#endif  // HWY_ONCE
