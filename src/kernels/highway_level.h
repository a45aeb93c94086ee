// Which Highway target a CPU level means. Kernels written with Highway are compiled once per target by <hwy/foreach_target.h>;
// CHORAL_AT_LEVEL(level, function) gives the form for Context::level. Highway's own dispatch is not used: it follows a global,
// and a test that runs each level would have to change it. Base is SSE4 where the machine has it and else the compiler's baseline
// (Highway 1.0.3 knows no plain SSE2 target). Include in the HWY_ONCE part of a .cc only.
#pragma once

#include <hwy/highway.h>

#include "base/cpu_level.h"

#if HWY_TARGETS & HWY_AVX3
#define CHORAL_AVX512_FORM(function) &N_AVX3::function
#else
#define CHORAL_AVX512_FORM(function) &HWY_STATIC_DISPATCH(function)
#endif
#if HWY_TARGETS & HWY_AVX2
#define CHORAL_AVX2_FORM(function) &N_AVX2::function
#else
#define CHORAL_AVX2_FORM(function) &HWY_STATIC_DISPATCH(function)
#endif
#if HWY_TARGETS & HWY_SSE4
#define CHORAL_SSE4_FORM(function) &N_SSE4::function
#else
#define CHORAL_SSE4_FORM(function) &HWY_STATIC_DISPATCH(function)
#endif

namespace choral::kernels {

inline bool machine_has_sse4() {
  static const bool has = (hwy::SupportedTargets() & HWY_SSE4) != 0;
  return has;
}

}  // namespace choral::kernels

#define CHORAL_AT_LEVEL(level, function)                                                 \
  (::choral::includes(level, ::choral::CpuLevel::kAvx512) ? CHORAL_AVX512_FORM(function) \
   : ::choral::includes(level, ::choral::CpuLevel::kAvx2) ? CHORAL_AVX2_FORM(function)   \
   : ::choral::kernels::machine_has_sse4()                ? CHORAL_SSE4_FORM(function)   \
                                                          : &HWY_STATIC_DISPATCH(function))
