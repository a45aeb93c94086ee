#include "kernels/attention/kv_quant.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/kv_quant.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

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
  write_apart(count, q, stride, [x, scale](int64_t begin, int64_t size, int8_t* piece) HWY_ATTR {
    quantise_with_scale(x + begin, size, scale, piece);
  });
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
