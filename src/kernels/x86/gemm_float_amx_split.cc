#include "kernels/x86/gemm_float_amx_split.h"

#include <algorithm>

#include "kernels/x86/intrinsics.h"

#define CHORAL_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd")))
#define CHORAL_INLINE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd"), always_inline)) inline

namespace choral::kernels {
namespace {

// The upper halves of 32 floats, in order.
CHORAL_INLINE __m512i upper_halves(__m512i a, __m512i b) {
  const __m512i odd = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21, 19,
                                       17, 15, 13, 11, 9, 7, 5, 3, 1);
  return _mm512_permutex2var_epi16(a, odd, b);
}

// Each term is the upper half of its float.
CHORAL_INLINE void split(__m512 x, __m512i (&terms)[kAmxTerms]) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  const __mmask16 finite = _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(__builtin_inff()), _CMP_LT_OQ);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i hi = _mm512_and_si512(bits, upper);
  const __m512 rest = _mm512_maskz_sub_ps(finite, x, _mm512_castsi512_ps(hi));
  const __m512i mid = _mm512_and_si512(_mm512_castps_si512(rest), upper);
  const __m512 last = _mm512_sub_ps(rest, _mm512_castsi512_ps(mid));
  terms[0] = _mm512_and_si512(_mm512_castps_si512(last),
                              upper);  // cuts subnormal bits only
  terms[1] = mid;
  terms[2] = _mm512_mask_or_epi32(hi, nan, hi,
                                  _mm512_set1_epi32(0x00400000));  // its payload may be in the lower half
}

CHORAL_INLINE void store(const __m512i (&low)[kAmxTerms], const __m512i (&high)[kAmxTerms], int term, uint16_t* out) {
  _mm512_store_si512(out, upper_halves(low[term], high[term]));
}
CHORAL_INLINE void store(const __m512i (&low)[kAmxTerms], const __m512i (&high)[kAmxTerms], int term, float* out) {
  _mm512_store_si512(out, low[term]);
  _mm512_store_si512(out + 16, high[term]);
}

// `count` of 32 elements, the rest zero.
template <class T>
CHORAL_INLINE void split_block(const float* x, int64_t count, T* out, int64_t term_stride) {
  const auto mask = static_cast<uint32_t>((uint64_t{1} << count) - 1);
  const __m512 a = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), x);
  const __m512 b = count > 16 ? _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), x + 16) : _mm512_setzero_ps();
  __m512i low[kAmxTerms], high[kAmxTerms];
  split(a, low);
  split(b, high);
  for (int term = 0; term < kAmxTerms; ++term) store(low, high, term, out + term * term_stride);
}

template <class T>
CHORAL_INLINE void split_all(const SplitRows<T>& split, MatrixView<const float> x, int64_t block0, int64_t block1, T* out) {
  for (int64_t t = 0; t < split.tiles; ++t) {
    const int64_t height = split.height(t);
    for (int64_t r = 0; r < height; ++r) {
      const float* row = x.row(split.begin(t) + r);
      T* target = out + (split.tile(t, 0) - split.data) + r * kAmxBlockK;
      for (int64_t b = block0; b < block1; ++b) {
        split_block(row + b * kAmxBlockK, std::min(kAmxBlockK, x.cols - b * kAmxBlockK),
                    target + b * kAmxTerms * height * kAmxBlockK, height * kAmxBlockK);
      }
    }
  }
}

}  // namespace

CHORAL_AVX512 void split_rows(const SplitRows<uint16_t>& split, MatrixView<const float> x, int64_t block0, int64_t block1,
                              uint16_t* out) {
  split_all(split, x, block0, block1, out);
}

CHORAL_AVX512 void split_rows(const SplitRows<float>& split, MatrixView<const float> x, int64_t block0, int64_t block1,
                              float* out) {
  split_all(split, x, block0, block1, out);
}

}  // namespace choral::kernels
