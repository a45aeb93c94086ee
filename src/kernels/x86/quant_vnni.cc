// The quantised GEMM with AVX512_VNNI: vpdpbusd adds four u8 x s8 products to each int32 lane without saturation.
// Weights are the unsigned operand as stored (w + zero); sums begin at -zero * sum(q), which quantise_rows left beside x.
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

struct Simd : Simd512 {
  static constexpr const char* kName = "avx512 vnni";
  // 3 x 4 sums of integers, as many of floats, 4 weights, x and a mask are 30 of 32 registers. 6 x 4 sums of integers with the
  // floats in memory would leave the multiplies waiting for 24 stores a block.
  static constexpr int tile_rows(QuantForm) { return 3; }
  static constexpr int kTilePanels = 4;
  static constexpr int kPrefetchBytes = 2048;
  static constexpr int zero(QuantForm form) { return form.zero(); }
  static constexpr bool kSumsInRegisters = true;  // of floats, between blocks
  // 4 bits are unpacked on the way, on ports that the multiplies leave free; the others and codes, which take more, become bytes
  // first. An unpacked chunk is read as packed bytes are.
  static constexpr bool reads_packed(QuantForm form) { return form.value_bits() == 4 || form.bits == 8; }
  static constexpr int tile_bits(int bits) { return bits == 4 ? 4 : 8; }
  static CHORAL_SIMD Bytes recentre(Bytes stored) { return stored; }

  template <int kBits>
  struct Weight {
    Bytes u;
    CHORAL_SIMD void set(Bytes v) {
      asm("" : "+v"(v));  // in a register, once: g++ 12 loads it for every row otherwise
      u = v;
    }
    CHORAL_SIMD void load(const uint8_t* p) { set(Simd512::load(p)); }
  };
  template <int kBits>
  struct Sum {
    __m512i i;
    CHORAL_SIMD void begin(int32_t start) { i = _mm512_set1_epi32(start); }
    template <int kLocal>
    CHORAL_SIMD void add(const Weight<kBits>& w, Bytes x) {
      Bytes next = _mm512_dpbusd_epi32(i, w.u, x);
      asm("" : "+v"(next));  // stays in its register
      i = next;
    }
    template <bool kStarts>
    CHORAL_SIMD Bytes total(int32_t) const {
      return i;
    }
  };
};

#include "kernels/x86/quant_kernel_inl.h"

}  // namespace

QuantKernel quant_kernel_vnni(QuantForm form) { return choose_kernel(form); }

}  // namespace choral::kernels::x86
