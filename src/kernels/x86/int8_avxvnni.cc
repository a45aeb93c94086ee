#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/gemm/int8/int8_kernels.h"
#include "kernels/gemm/int8/int8_panels.h"

// UBSan and ASan together make minutes of compile time of these unrolled templates; ASan alone checks what matters here, the
// loads.
#define CHORAL_INT8_TARGET __attribute__((target("avx2,fma,avxvnni"), no_sanitize("undefined")))
#define CHORAL_DPBUSD _mm256_dpbusd_avx_epi32

namespace choral::kernels::x86 {
namespace {

#include "kernels/x86/int8_avxvnni_inl.h"

}  // namespace

const Int8Kernels& avxvnni_int8_kernels() { return kKernels; }

}  // namespace choral::kernels::x86
