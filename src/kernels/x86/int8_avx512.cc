// Int8 products with AVX-512BW but no VNNI: bytes widened to words, vpmaddwd sums pairs of products in int32. Exact for all
// bytes; x86/int8_avx2.cc says why not vpmaddubsw.
#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/gemm/int8/int8_kernels.h"
#include "kernels/gemm/int8/int8_panels.h"
#include "kernels/x86/intrinsics.h"

// UBSan and ASan together make minutes of compile time of these unrolled templates; ASan alone checks what matters here, the
// loads.
#define CHORAL_INT8_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"), no_sanitize("undefined")))
#define CHORAL_INT8_REGISTER "+v"
#define CHORAL_SIMD CHORAL_INT8_TARGET __attribute__((always_inline)) inline

namespace choral::kernels::x86 {
namespace {

#include "kernels/x86/simd512_inl.h"

struct Simd : Simd512 {
  static constexpr const char* kName = "avx512 vpmaddwd";
  static constexpr int kParts = 2;
  static constexpr int kLanes = 16;
  static constexpr int kStepBytes = 8;
  static constexpr int kTileRows = 6;  // 6 x 2 panels of two sums, 4 weights, x and a product are 30 of 32 registers
  static constexpr int kDirectRows = kTileRows;
  static constexpr int at_once(int rows) { return rows <= 2 ? 8 : 4; }
  static constexpr int kBlockK = 1024;
  static constexpr auto kFetchTo = _MM_HINT_T0;

  static CHORAL_SIMD Ints load_weights(const std::byte* p) {
    return _mm512_cvtepu8_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static CHORAL_SIMD Ints add_products(Ints sum, Ints w, Ints q) {
    asm("vpaddd %1, %0, %0" : "+v"(sum) : "v"(_mm512_madd_epi16(w, q)));
    return sum;
  }
  static CHORAL_SIMD void store_total(int32_t* to, Ints sum, bool resume) {
    auto* at = reinterpret_cast<__m256i*>(to);
    const __m256i total = _mm512_cvtepi64_epi32(_mm512_add_epi32(sum, _mm512_srli_epi64(sum, 32)));
    _mm256_store_si256(at, resume ? _mm256_add_epi32(total, _mm256_load_si256(at)) : total);
  }
  static CHORAL_SIMD Ints broadcast(const std::byte* four) {
    int64_t words;
    std::memcpy(&words, four, sizeof words);
    return _mm512_set1_epi64(words);
  }
};

#include "kernels/x86/int8_kernel_inl.h"

}  // namespace

const Int8Kernels& avx512_int8_kernels() { return kKernels; }

}  // namespace choral::kernels::x86
