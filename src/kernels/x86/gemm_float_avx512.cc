// AVX-512 micro-kernels of gemm_float_kernels.h: one zmm for a panel's 16 channels. 14 rows × 2 panels hold 28 of 32 registers;
// up to 6 rows go over 4 panels, because four streams draw more from memory than one (17 -> 22 GB/s with 2 threads, measured).
#include <array>
#include <utility>

#include "base/check.h"
#include "kernels/gemm/gemm_float_kernels.h"
#include "kernels/x86/intrinsics.h"

#define CHORAL_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,f16c")))
#define CHORAL_INLINE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,f16c"), always_inline)) inline

namespace choral::kernels {
namespace {

constexpr int kMaxRows = 14;
constexpr int kMaxRowsOfTwoPanels = 14;
constexpr int kMaxRowsOfFourPanels = 6;
constexpr int kTilePanels = 2;
constexpr int kMaxInPlaceTiles = 4;  // so few tiles lose more by the floats' place in L1 than by widening again

struct Simd {
  using Floats = __m512;
  static constexpr int kVectors = 1;
  static constexpr int kRegisters = 32;

  static CHORAL_INLINE Floats zero() { return _mm512_setzero_ps(); }
  static CHORAL_INLINE Floats load(const float* p) { return _mm512_load_ps(p); }
  static CHORAL_INLINE void store(float* p, Floats v) { _mm512_store_ps(p, v); }
  static CHORAL_INLINE Floats broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static CHORAL_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static CHORAL_INLINE Floats halves(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static CHORAL_INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  // The lower and the upper bf16 of each 32 bits.
  static CHORAL_INLINE Floats low_bf16(const std::byte* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_load_si512(p), 16));
  }
  static CHORAL_INLINE Floats high_bf16(const std::byte* p) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_load_si512(p), _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
  }
  // 2^-8 of the lower and the upper e4m3 of each 16 bits: the sign stays, the seven bits below go one to the right.
  static CHORAL_INLINE Floats low_float8(const std::byte* pairs, int) {
    return halves_of_upper(_mm256_slli_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(pairs)), 8));
  }
  static CHORAL_INLINE Floats high_float8(const std::byte* pairs, int) {
    return halves_of_upper(_mm256_load_si256(reinterpret_cast<const __m256i*>(pairs)));
  }
  static CHORAL_INLINE Floats halves_of_upper(__m256i upper) {
    return _mm512_cvtph_ps(_mm256_and_si256(_mm256_srai_epi16(upper, 1), _mm256_set1_epi16(static_cast<int16_t>(0xBF80))));
  }
};

#include "kernels/x86/gemm_float_kernel_inl.h"

}  // namespace

const FloatKernels& avx512_float_kernels() {
  static constexpr FloatKernels kKernels{"avx512 fma", kMaxRows,   kMaxInPlaceTiles, kMaxRows,
                                         kTilePanels,  panels_for, find_micro,       find_widening};
  return kKernels;
}

}  // namespace choral::kernels
