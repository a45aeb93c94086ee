// AVX2 micro-kernels of gemm_float_kernels.h: two ymm for a panel's 16 channels. 6 rows × 1 panel hold 12 of 16 registers;
// one row goes over 4 panels (8 registers, four streams), two and three rows over 2.
#include <immintrin.h>

#include <array>
#include <utility>

#include "base/check.h"
#include "kernels/gemm/gemm_float_kernels.h"

#define CHORAL_TARGET __attribute__((target("avx2,fma,f16c")))
#define CHORAL_INLINE __attribute__((target("avx2,fma,f16c"), always_inline)) inline

namespace choral::kernels {
namespace {

constexpr int kMaxRows = 6;
constexpr int kMaxRowsOfTwoPanels = 3;
constexpr int kMaxRowsOfFourPanels = 1;
constexpr int kTilePanels = 1;
constexpr int kMaxInPlaceTiles = 6;  // so few tiles lose more by the floats' place in L1 than by widening again

struct Simd {
  using Floats = __m256;
  static constexpr int kVectors = 2;
  static constexpr int kRegisters = 16;

  static CHORAL_INLINE Floats zero() { return _mm256_setzero_ps(); }
  static CHORAL_INLINE Floats load(const float* p) { return _mm256_load_ps(p); }
  static CHORAL_INLINE void store(float* p, Floats v) { _mm256_store_ps(p, v); }
  static CHORAL_INLINE Floats broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static CHORAL_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static CHORAL_INLINE Floats halves(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static CHORAL_INLINE Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  // The lower and the upper bf16 of each 32 bits.
  static CHORAL_INLINE Floats low_bf16(const std::byte* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)), 16));
  }
  static CHORAL_INLINE Floats high_bf16(const std::byte* p) {
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)), upper));
  }
  // 2^-8 of the lower and the upper e4m3 of each 16 bits: the sign stays, the seven bits below go one to the right.
  static CHORAL_INLINE Floats low_float8(const std::byte* pairs, int v) {
    return vector_of_halves(_mm256_slli_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(pairs)), 8), v);
  }
  static CHORAL_INLINE Floats high_float8(const std::byte* pairs, int v) {
    return vector_of_halves(_mm256_load_si256(reinterpret_cast<const __m256i*>(pairs)), v);
  }
  static CHORAL_INLINE Floats vector_of_halves(__m256i upper, int v) {
    const __m256i halves = _mm256_and_si256(_mm256_srai_epi16(upper, 1), _mm256_set1_epi16(static_cast<int16_t>(0xBF80)));
    return _mm256_cvtph_ps(v == 0 ? _mm256_castsi256_si128(halves) : _mm256_extracti128_si256(halves, 1));
  }
};

#include "kernels/x86/gemm_float_kernel_inl.h"

}  // namespace

const FloatKernels& avx2_float_kernels() {
  static constexpr FloatKernels kKernels{"avx2 fma",  kMaxRows,   kMaxInPlaceTiles, kMaxRows,
                                         kTilePanels, panels_for, find_micro,       find_widening};
  return kKernels;
}

}  // namespace choral::kernels
