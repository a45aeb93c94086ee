#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/gemm/gemm_float_pack.h"

#define CHORAL_AVX2 __attribute__((target("avx2,fma,f16c")))
#define CHORAL_AVX2_INLINE __attribute__((target("avx2,fma,f16c"), always_inline)) inline

namespace choral::kernels {
namespace {

constexpr int kLanes = 16;

// Eight rows of eight 32-bit elements, transposed in registers.
CHORAL_AVX2_INLINE void transpose8x8(const std::byte* const* rows, int64_t byte, __m256i* out) {
  __m256 a[8], b[8];
#pragma GCC unroll 8
  for (int r = 0; r < 8; ++r) a[r] = _mm256_loadu_ps(reinterpret_cast<const float*>(rows[r] + byte));
#pragma GCC unroll 4
  for (int r = 0; r < 8; r += 2) {
    b[r] = _mm256_unpacklo_ps(a[r], a[r + 1]);
    b[r + 1] = _mm256_unpackhi_ps(a[r], a[r + 1]);
  }
#pragma GCC unroll 2
  for (int r = 0; r < 8; r += 4) {
    a[r] = _mm256_shuffle_ps(b[r], b[r + 2], 0x44);
    a[r + 1] = _mm256_shuffle_ps(b[r], b[r + 2], 0xEE);
    a[r + 2] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0x44);
    a[r + 3] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    out[r] = _mm256_castps_si256(_mm256_permute2f128_ps(a[r], a[r + 4], 0x20));
    out[r + 4] = _mm256_castps_si256(_mm256_permute2f128_ps(a[r], a[r + 4], 0x31));
  }
}

CHORAL_AVX2 void transpose32_avx2(const std::byte* const* rows, int rows_present, int64_t count, std::byte* out) {
  const int64_t whole = rows_present == kLanes ? count / 8 * 8 : 0;
  for (int64_t i = 0; i < whole; i += 8) {
    for (int half = 0; half < 2; ++half) {
      __m256i t[8];
      transpose8x8(rows + half * 8, i * 4, t);
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(out + ((i + j) * kLanes + half * 8) * 4), t[j]);
      }
    }
  }
  transpose_each<uint32_t>(rows, rows_present, whole, count, out);
}

// Pairs of 16-bit elements move as 32-bit ones; then the pairs are parted into two rows of the panel.
CHORAL_AVX2 void transpose16_avx2(const std::byte* const* rows, int rows_present, int64_t count, std::byte* out) {
  const int64_t whole = rows_present == kLanes ? count / 16 * 16 : 0;
  const __m256i low = _mm256_set1_epi32(0xFFFF);
  for (int64_t i = 0; i < whole; i += 16) {
    __m256i t[2][8];
    transpose8x8(rows, i * 2, t[0]);
    transpose8x8(rows + 8, i * 2, t[1]);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m256i even = _mm256_packus_epi32(_mm256_and_si256(t[0][j], low), _mm256_and_si256(t[1][j], low));
      const __m256i odd = _mm256_packus_epi32(_mm256_srli_epi32(t[0][j], 16), _mm256_srli_epi32(t[1][j], 16));
      auto* target = reinterpret_cast<__m256i*>(out + (i + 2 * j) * kLanes * 2);
      _mm256_store_si256(target, _mm256_permute4x64_epi64(even, 0xD8));
      _mm256_store_si256(target + 1, _mm256_permute4x64_epi64(odd, 0xD8));
    }
  }
  transpose_each<uint16_t>(rows, rows_present, whole, count, out);
}

CHORAL_AVX2_INLINE __m256i rounded_to_bfloat16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, nan);
}

CHORAL_AVX2 void to_bfloat16_avx2(const float* in, int64_t count, BFloat16* out) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i a = rounded_to_bfloat16(_mm256_loadu_ps(in + i));
    const __m256i b = rounded_to_bfloat16(_mm256_loadu_ps(in + i + 8));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8));
  }
  base_pack_kernels().to_bfloat16(in + i, count - i, out + i);
}

CHORAL_AVX2 void to_float16_avx2(const float* in, int64_t count, Float16* out) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
  }
  base_pack_kernels().to_float16(in + i, count - i, out + i);
}

}  // namespace

const PackKernels& avx2_pack_kernels() {
  static constexpr PackKernels kKernels{transpose32_avx2, transpose16_avx2, to_bfloat16_avx2, to_float16_avx2};
  return kKernels;
}

}  // namespace choral::kernels
