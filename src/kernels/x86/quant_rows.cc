#include "kernels/x86/quant_rows.h"

#include <immintrin.h>

#include <bit>
#include <limits>

#define CHORAL_TARGET __attribute__((target("avx2,fma,f16c")))

namespace choral::kernels::x86 {
namespace {

constexpr uint32_t kInfinityBits = 0x7F800000u;

// max over 32 of the bits of |x|: as integers they order like the values, infinity and then NaN above all.
CHORAL_TARGET inline uint32_t max_magnitude_bits(const __m256i (&v)[4]) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  const __m256i ab = _mm256_max_epi32(_mm256_and_si256(v[0], magnitude), _mm256_and_si256(v[1], magnitude));
  const __m256i cd = _mm256_max_epi32(_mm256_and_si256(v[2], magnitude), _mm256_and_si256(v[3], magnitude));
  const __m256i all = _mm256_max_epi32(ab, cd);
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

CHORAL_TARGET inline int32_t sum_of_four(__m128i v) {
  v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4E));
  v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0xB1));
  return _mm_cvtsi128_si32(v);
}

}  // namespace

CHORAL_TARGET void quantise_row_avx2(const float* x, int64_t k, QuantiseOptions options, QuantisedBlock* out) {
  for (int64_t b = 0; b < k / 32; ++b, x += 32) {
    __m256i v[4];
    for (int i = 0; i < 4; ++i) v[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 8 * i));
    const uint32_t bits = max_magnitude_bits(v);
    QuantisedBlock& block = out[b];
    const float scale = bits < kInfinityBits ? std::bit_cast<float>(bits) / 127.0f : std::numeric_limits<float>::quiet_NaN();
    if (!(scale > 0.0f)) {
      block = QuantisedBlock{};
      block.scale = block.sum = scale;
      continue;
    }
    const __m256 s = _mm256_set1_ps(scale);
    __m256i q[4];
    for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_div_ps(_mm256_castsi256_ps(v[i]), s));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));  // packs works within 128-bit lanes
    bytes = _mm256_max_epi8(bytes, _mm256_set1_epi8(-127));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(block.q), bytes);
    const __m256i sums = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
    const int32_t first = sum_of_four(_mm256_castsi256_si128(sums));
    const int32_t second = sum_of_four(_mm256_extracti128_si256(sums, 1));
    block.scale = scale;
    block.start[0] = -options.zero * (options.halves ? first : first + second);
    block.start[1] = options.halves ? -options.zero * second : 0;
    block.sum = scale * static_cast<float>(first + second);
  }
}

}  // namespace choral::kernels::x86
