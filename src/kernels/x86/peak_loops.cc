#include "kernels/peak_loops.h"

#include "kernels/x86/gemm_float_amx_tiles.h"
#include "kernels/x86/intrinsics.h"

#define CHORAL_AVX2 __attribute__((target("avx2,fma")))
#define CHORAL_AVXVNNI __attribute__((target("avx2,fma,avxvnni")))
#define CHORAL_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,fma")))
#define CHORAL_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512vnni,fma")))
#define CHORAL_UNROLL _Pragma("GCC unroll 16")

namespace choral::kernels {
namespace {

// `kStreams` are read side by side.
template <int kStreams, bool kPrefetch>
CHORAL_AVX512 uint64_t read_avx512(const std::byte* data, int64_t bytes) {
  const int64_t each = bytes / kStreams;
  __m512i sum[kStreams];
  CHORAL_UNROLL
  for (int s = 0; s < kStreams; ++s) sum[s] = _mm512_setzero_si512();
  for (int64_t i = 0; i < each; i += 64) {
    CHORAL_UNROLL
    for (int s = 0; s < kStreams; ++s) {
      if (kPrefetch) _mm_prefetch(data + s * each + i + kReadAheadBytes, _MM_HINT_T0);
      sum[s] = _mm512_xor_si512(sum[s], _mm512_load_si512(data + s * each + i));
    }
  }
  uint64_t all = 0;
  CHORAL_UNROLL
  for (int s = 0; s < kStreams; ++s) all ^= static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_castsi512_si128(sum[s])));
  return all;
}

constexpr Reader kAvx512Readers[] = {read_avx512<1, true>, read_avx512<2, true>,  read_avx512<4, true>,
                                     read_avx512<8, true>, read_avx512<4, false>, read_avx512<8, false>};

// The empty asm takes the accumulators through the optimiser unchanged.
double fma_base(int64_t steps) {
  __m128 acc[kChains] = {};
  const __m128 a = _mm_set1_ps(0.999f), b = _mm_set1_ps(1e-4f);
  for (int64_t i = 0; i < steps; ++i) {
    CHORAL_UNROLL
    for (int c = 0; c < kChains; ++c) {
      acc[c] = _mm_add_ps(_mm_mul_ps(acc[c], a), b);
      asm volatile("" : "+x"(acc[c]));
    }
  }
  return static_cast<double>(steps) * kChains * 4 * 2;
}

CHORAL_AVX2 double fma_avx2(int64_t steps) {
  __m256 acc[kChains];
  CHORAL_UNROLL
  for (int c = 0; c < kChains; ++c) acc[c] = _mm256_setzero_ps();
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-4f);
  for (int64_t i = 0; i < steps; ++i) {
    CHORAL_UNROLL
    for (int c = 0; c < kChains; ++c) {
      acc[c] = _mm256_fmadd_ps(acc[c], a, b);
      asm volatile("" : "+x"(acc[c]));
    }
  }
  return static_cast<double>(steps) * kChains * 8 * 2;
}

CHORAL_AVX512 double fma_avx512(int64_t steps) {
  __m512 acc[kChains];
  CHORAL_UNROLL
  for (int c = 0; c < kChains; ++c) acc[c] = _mm512_setzero_ps();
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-4f);
  for (int64_t i = 0; i < steps; ++i) {
    CHORAL_UNROLL
    for (int c = 0; c < kChains; ++c) {
      acc[c] = _mm512_fmadd_ps(acc[c], a, b);
      asm volatile("" : "+v"(acc[c]));
    }
  }
  return static_cast<double>(steps) * kChains * 16 * 2;
}

double int8_base(int64_t steps) {  // int16 products: SSE2 has no int8 multiply
  __m128i acc[6] = {};
  __m128i a = _mm_set1_epi16(3);
  const __m128i b = _mm_set1_epi16(5);
  for (int64_t i = 0; i < steps; ++i) {
    CHORAL_UNROLL
    for (int c = 0; c < 6; ++c) {
      asm volatile("" : "+x"(a));
      acc[c] = _mm_add_epi32(acc[c], _mm_madd_epi16(a, b));
      asm volatile("" : "+x"(acc[c]));
    }
  }
  return static_cast<double>(steps) * 6 * 8 * 2;
}

CHORAL_AVX2 double int8_avx2(int64_t steps) {
  __m256i acc[6];
  CHORAL_UNROLL
  for (int c = 0; c < 6; ++c) acc[c] = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(5), one = _mm256_set1_epi16(1);
  for (int64_t i = 0; i < steps; ++i) {
    CHORAL_UNROLL
    for (int c = 0; c < 6; ++c) {
      asm volatile("" : "+x"(a));
      acc[c] = _mm256_add_epi32(acc[c], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), one));
      asm volatile("" : "+x"(acc[c]));
    }
  }
  return static_cast<double>(steps) * 6 * 32 * 2;
}

CHORAL_AVXVNNI double int8_avxvnni(int64_t steps) {
  __m256i acc[kChains];
  CHORAL_UNROLL
  for (int c = 0; c < kChains; ++c) acc[c] = _mm256_setzero_si256();
  const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
  for (int64_t i = 0; i < steps; ++i) {
    CHORAL_UNROLL
    for (int c = 0; c < kChains; ++c) {
      acc[c] = _mm256_dpbusd_avx_epi32(acc[c], a, b);
      asm volatile("" : "+x"(acc[c]));
    }
  }
  return static_cast<double>(steps) * kChains * 32 * 2;
}

CHORAL_AVX512 double int8_avx512(int64_t steps) {
  __m512i acc[6];
  CHORAL_UNROLL
  for (int c = 0; c < 6; ++c) acc[c] = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(5), one = _mm512_set1_epi16(1);
  for (int64_t i = 0; i < steps; ++i) {
    CHORAL_UNROLL
    for (int c = 0; c < 6; ++c) {
      asm volatile("" : "+v"(a));
      acc[c] = _mm512_add_epi32(acc[c], _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), one));
      asm volatile("" : "+v"(acc[c]));
    }
  }
  return static_cast<double>(steps) * 6 * 64 * 2;
}

CHORAL_VNNI double int8_vnni(int64_t steps) {
  __m512i acc[kChains];
  CHORAL_UNROLL
  for (int c = 0; c < kChains; ++c) acc[c] = _mm512_setzero_si512();
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  for (int64_t i = 0; i < steps; ++i) {
    CHORAL_UNROLL
    for (int c = 0; c < kChains; ++c) {
      acc[c] = _mm512_dpbusd_epi32(acc[c], a, b);
      asm volatile("" : "+v"(acc[c]));
    }
  }
  return static_cast<double>(steps) * kChains * 64 * 2;
}

}  // namespace

const PeakLoops& peak_loops(CpuLevel level) {
  static const PeakLoops kLoops[] = {
      {base_readers(), fma_base, int8_base, nullptr},    {base_readers(), fma_avx2, int8_avx2, nullptr},
      {base_readers(), fma_avx2, int8_avxvnni, nullptr}, {kAvx512Readers, fma_avx512, int8_avx512, nullptr},
      {kAvx512Readers, fma_avx512, int8_vnni, nullptr},  {kAvx512Readers, fma_avx512, int8_vnni, burn_amx_bf16}};
  return kLoops[static_cast<int>(level)];
}

}  // namespace choral::kernels
