// Int8 products with AVX-512BW but no VNNI: bytes widened to words, vpmaddwd sums pairs of products in int32. Exact for all
// bytes; x86/int8_avx2.cc says why not vpmaddubsw.
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
#define CHORAL_INT8_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"), no_sanitize("undefined")))
#define CHORAL_SIMD CHORAL_INT8_TARGET __attribute__((always_inline)) inline

namespace choral::kernels::x86 {
namespace {

struct Simd {
  using Ints = __m512i;
  using Floats = __m512;
  static constexpr const char* kName = "avx512 vpmaddwd";
  static constexpr int kVectors = 1;
  static constexpr int kStepBytes = 8;
  static constexpr int kTileRows = 6;  // 6 x 2 panels of two sums, 4 weights, x and a product are 30 of 32 registers
  static constexpr int at_once(int rows) { return rows <= 2 ? 4 : 2; }
  static constexpr auto kFetchTo = _MM_HINT_T0;

  struct Weight {  // of channels 0-7 and 8-15
    Ints low, high;
    CHORAL_SIMD void load(const std::byte* p) {
      low = _mm512_cvtepu8_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
      high = _mm512_cvtepu8_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(p + 32)));
    }
  };
  struct Sum {  // two of each channel, side by side
    Ints low, high;
    CHORAL_SIMD void clear() { low = high = _mm512_setzero_si512(); }
    CHORAL_SIMD void add(const Weight& w, Ints q) {
      low = _mm512_add_epi32(low, _mm512_madd_epi16(w.low, q));
      high = _mm512_add_epi32(high, _mm512_madd_epi16(w.high, q));
    }
    CHORAL_SIMD Ints total() const {
      const Ints even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
      const Ints odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
      return _mm512_add_epi32(_mm512_permutex2var_epi32(low, even, high), _mm512_permutex2var_epi32(low, odd, high));
    }
  };
  static CHORAL_SIMD Ints broadcast(const std::byte* four) {
    int64_t words;
    std::memcpy(&words, four, sizeof words);
    return _mm512_set1_epi64(words);
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

const Int8Kernels& avx512_int8_kernels() { return kKernels; }

}  // namespace choral::kernels::x86
