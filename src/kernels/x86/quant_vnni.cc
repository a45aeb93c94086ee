// The quantised GEMM with AVX512_VNNI: vpdpbusd on 512 bits (quant_dpbusd_inl.h).
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/gemm/gemm_quant_kernel.h"
#include "kernels/x86/intrinsics.h"

// UBSan and ASan together make minutes of compile time of these unrolled templates; ASan alone checks what matters here, the
// loads.
#define CHORAL_QUANT_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c"), no_sanitize("undefined")))
#define CHORAL_SIMD CHORAL_QUANT_TARGET __attribute__((always_inline)) inline

namespace choral::kernels::x86 {
namespace {

#include "kernels/x86/simd512_inl.h"

#define CHORAL_VECTORS Simd512
#define CHORAL_DPBUSD _mm512_dpbusd_epi32
#include "kernels/x86/quant_dpbusd_inl.h"

struct Simd : ByteProducts {
  static constexpr const char* kName = "avx512 vnni";
  // 3 x 4 sums of integers, as many of floats, 4 weights, x and a mask are 30 of 32 registers. 6 x 4 sums of integers with the
  // floats in memory would leave the multiplies waiting for 24 stores a block.
  static constexpr int tile_rows(QuantForm) { return 3; }
  static constexpr int kTilePanels = 4;
  static constexpr int kPrefetchBytes = 2048;
  static constexpr bool kSumsInRegisters = true;  // of floats, between blocks
};

#include "kernels/x86/quant_kernel_inl.h"

}  // namespace

QuantKernel quant_kernel_vnni(QuantForm form) { return choose_kernel(form); }

}  // namespace choral::kernels::x86
