// Int8 products with AVX2: bytes widened to words, vpmaddwd sums pairs of products in int32. Exact for all bytes, -128 on both
// sides included. vpmaddubsw sums in int16, so it would need |w| and x with w's sign, which is as many instructions for a vector
// (sign, maddubs, madd, add against two each of madd and add), and would hold for |x| <= 127 only, which static rows may break.
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/gemm/int8/int8_kernels.h"
#include "kernels/gemm/int8/int8_panels.h"

// UBSan and ASan together make minutes of compile time of these unrolled templates; ASan alone checks what matters here, the
// loads.
#define CHORAL_INT8_TARGET __attribute__((target("avx2,fma"), no_sanitize("undefined")))
#define CHORAL_INT8_REGISTER "+x"
#define CHORAL_SIMD CHORAL_INT8_TARGET __attribute__((always_inline)) inline

namespace choral::kernels::x86 {
namespace {

#include "kernels/x86/simd256_inl.h"

struct Simd : Simd256 {
  static constexpr const char* kName = "avx2 vpmaddwd";
  static constexpr int kParts = 4;
  static constexpr int kLanes = 8;
  static constexpr int kStepBytes = 8;
  static constexpr int kTileRows = 6;  // 6 x 8 channels of two sums, 2 weights, x and a product are the 16 registers
  static constexpr int kDirectRows = kTileRows;
  static constexpr int at_once(int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : 2; }
  static constexpr int kBlockK = 1024;
  static constexpr auto kFetchTo = _MM_HINT_T0;

  static CHORAL_SIMD Ints load_weights(const std::byte* p) {
    return _mm256_cvtepu8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static CHORAL_SIMD Ints add_products(Ints sum, Ints w, Ints q) {
    asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(_mm256_madd_epi16(w, q)));
    return sum;
  }
  static CHORAL_SIMD void store_total(int32_t* to, Ints sum, bool resume) {
    auto* at = reinterpret_cast<__m128i*>(to);
    const __m256i pairs = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sum, sum), 0xD8);
    const __m128i total = _mm256_castsi256_si128(pairs);
    _mm_store_si128(at, resume ? _mm_add_epi32(total, _mm_load_si128(at)) : total);
  }
  static CHORAL_SIMD Ints broadcast(const std::byte* four) {
    int64_t words;
    std::memcpy(&words, four, sizeof words);
    return _mm256_set1_epi64x(words);
  }
};

#include "kernels/x86/int8_kernel_inl.h"

}  // namespace

const Int8Kernels& avx2_int8_kernels() { return kKernels; }

}  // namespace choral::kernels::x86
