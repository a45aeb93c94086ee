#include "kernels/x86/gemm_float_amx_row.h"

#include "kernels/gemm/packed_matrix.h"
#include "kernels/x86/intrinsics.h"

#define CHORAL_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma")))
#define CHORAL_INLINE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma"), always_inline)) inline
#define CHORAL_UNROLL _Pragma("GCC unroll 16")

namespace choral::kernels {
namespace {

constexpr int64_t kBlockBytes = kAmxBlockK * kPanelRows * 2;
constexpr int kPairBytes = 64;
constexpr int kTerms = kAmxTerms;

// acc = fma(w, x, acc) with x broadcast inside the instruction: 28 registers are accumulators, none is left to hold x.
CHORAL_INLINE void multiply_add(__m512& acc, __m512 w, const float* x) {
  asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*x));
}

// P = 4 has 24 chains, 4 sums and the weights in 32 registers.
template <int P>
CHORAL_AVX512 void row_kernel(const AmxRowArgs& args) {
  __m512 acc[P];
  CHORAL_UNROLL
  for (int p = 0; p < P; ++p) acc[p] = _mm512_setzero_ps();
  const int64_t stride = args.panel_bytes;
  const int64_t blocks = stride / kBlockBytes;
  const int64_t own_blocks = blocks - args.ahead_bytes / kBlockBytes;
  const float* x = args.x;
  const std::byte* w = args.w;
  for (int64_t b = 0; b < blocks; ++b, x += kTerms * kAmxBlockK) {
    const std::byte* ahead = w + args.ahead_bytes + (b < own_blocks ? 0 : (P - 1) * stride);
    __m512 even[kTerms][P], odd[kTerms][P];
    CHORAL_UNROLL
    for (int t = 0; t < kTerms; ++t) {
      CHORAL_UNROLL
      for (int p = 0; p < P; ++p) even[t][p] = odd[t][p] = _mm512_setzero_ps();
    }
#pragma GCC unroll 2
    for (int64_t k = 0; k < kAmxBlockK; k += 2, w += kPairBytes, ahead += kPairBytes) {
      CHORAL_UNROLL
      for (int p = 0; p < P; ++p) {
        _mm_prefetch(ahead + p * stride, _MM_HINT_T0);
        const __m512i pair = _mm512_load_si512(w + p * stride);
        const __m512 w0 = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
        const __m512 w1 = _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
        CHORAL_UNROLL
        for (int t = 0; t < kTerms; ++t) {
          multiply_add(even[t][p], w0, x + t * kAmxBlockK + k);
          multiply_add(odd[t][p], w1, x + t * kAmxBlockK + k + 1);
        }
      }
    }
    CHORAL_UNROLL
    for (int t = 0; t < kTerms; ++t) {
      CHORAL_UNROLL
      for (int p = 0; p < P; ++p) acc[p] = _mm512_add_ps(acc[p], _mm512_add_ps(even[t][p], odd[t][p]));
    }
  }
  CHORAL_UNROLL
  for (int p = 0; p < P; ++p) _mm512_store_ps(args.out + p * kPanelRows, acc[p]);
}

}  // namespace

AmxRowKernel amx_row_kernel(int64_t panels) { return panels == 4 ? row_kernel<4> : panels == 2 ? row_kernel<2> : row_kernel<1>; }

TileUnitRounding::TileUnitRounding() : saved_(_mm_getcsr()) {
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040, kAllMasked = 0x1F80;
  _mm_setcsr(kFlushToZero | kDenormalsAreZero | kAllMasked);
}
TileUnitRounding::~TileUnitRounding() { _mm_setcsr(saved_); }

}  // namespace choral::kernels
