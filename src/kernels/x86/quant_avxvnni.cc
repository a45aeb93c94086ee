#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/gemm/gemm_quant_kernel.h"

// UBSan and ASan together make minutes of compile time of these unrolled templates; ASan alone checks what matters here, the
// loads.
#define CHORAL_QUANT_TARGET __attribute__((target("avx2,fma,f16c,avxvnni"), no_sanitize("undefined")))
#define CHORAL_DPBUSD _mm256_dpbusd_avx_epi32

namespace choral::kernels::x86 {
namespace {

#include "kernels/x86/quant_avxvnni_inl.h"

}  // namespace

QuantKernel quant_kernel_avxvnni(QuantForm form) { return choose_kernel(form); }

}  // namespace choral::kernels::x86
