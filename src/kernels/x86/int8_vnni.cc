// Int8 products with AVX512_VNNI: vpdpbusd adds four u8 x s8 products to each int32 lane without saturation. Weights are the
// unsigned operand as stored (w + 128); that they are 128 too large is in where a sum starts.
#ifndef __clang__  // g++ 12 takes the undefined pass-through operand of its own AVX-512 intrinsics for a mistake (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/gemm/int8/int8_kernels.h"
#include "kernels/gemm/int8/int8_panels.h"

// UBSan and ASan together make minutes of compile time of these unrolled templates; ASan alone checks what matters here, the
// loads.
#define CHORAL_INT8_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma"), no_sanitize("undefined")))
#define CHORAL_INT8_REGISTER "+v"
#define CHORAL_SIMD CHORAL_INT8_TARGET __attribute__((always_inline)) inline

namespace choral::kernels::x86 {
namespace {

struct Simd {
  using Ints = __m512i;
  using Floats = __m512;
  static constexpr const char* kName = "avx512 vnni";
  static constexpr int kParts = 1;
  static constexpr int kLanes = 16;
  static constexpr int kStepBytes = 4;
  static constexpr int kTileRows = 6;     // 6 x 4 sums, 4 weights and x are 29 of 32 registers
  static constexpr int kDirectRows = 12;  // 12 x 2 sums, 2 weights and x are 27
  static constexpr int at_once(int rows) { return rows <= kTileRows ? 4 : 2; }
  static constexpr int kBlockK = 512;
  static constexpr auto kFetchTo = _MM_HINT_T0;

  static CHORAL_SIMD Ints load_weights(const std::byte* p) { return _mm512_load_si512(p); }
  static CHORAL_SIMD Ints add_products(Ints sum, Ints w, Ints q) { return _mm512_dpbusd_epi32(sum, w, q); }
  static CHORAL_SIMD void store_total(int32_t* to, Ints sum, bool resume) {
    _mm512_store_si512(to, resume ? add(sum, load_ints(to)) : sum);
  }
  static CHORAL_SIMD Ints broadcast(const std::byte* four) {
    int32_t word;
    std::memcpy(&word, four, sizeof word);
    return _mm512_set1_epi32(word);
  }

  static CHORAL_SIMD Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  static CHORAL_SIMD Ints load_ints(const int32_t* p) { return _mm512_load_si512(p); }
  static CHORAL_SIMD void store_ints(int32_t* p, Ints v) { _mm512_store_si512(p, v); }
  static CHORAL_SIMD Ints splat_int(int32_t v) { return _mm512_set1_epi32(v); }
  static CHORAL_SIMD Floats to_floats(Ints v) { return _mm512_cvtepi32_ps(v); }
  static CHORAL_SIMD Floats load_floats(const float* p) { return _mm512_load_ps(p); }
  static CHORAL_SIMD void store_floats(float* p, Floats v) { _mm512_store_ps(p, v); }
  static CHORAL_SIMD Floats splat(float v) { return _mm512_set1_ps(v); }
  static CHORAL_SIMD Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static CHORAL_SIMD Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
};

#include "kernels/x86/int8_kernel_inl.h"

}  // namespace

const Int8Kernels& vnni_int8_kernels() { return kKernels; }

}  // namespace choral::kernels::x86
