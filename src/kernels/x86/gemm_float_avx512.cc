// AVX-512 micro-kernels of gemm_float_kernels.h: one zmm for a panel's 16 channels. 14 rows × 2 panels hold 28 of 32 registers;
// up to 6 rows go over 4 panels, because four streams draw more from memory than one (17 -> 22 GB/s with 2 threads, measured).
#ifndef __clang__  // g++ 12 takes the undefined pass-through operand of its own AVX-512 intrinsics for a mistake (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "kernels/gemm/gemm_float_kernels.h"
#include "kernels/x86/gemm_float_finish.h"

#define CHORAL_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,f16c")))
#define CHORAL_INLINE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,f16c"), always_inline)) inline
#define CHORAL_UNROLL _Pragma("GCC unroll 16")

namespace choral::kernels {
namespace {

constexpr int kMaxRows = 14;
constexpr int kMaxRowsOfFourPanels = 6;
constexpr int kMaxInPlaceTiles = 4;  // so few tiles lose more by the floats' place in L1 than by widening again

// Two k of one panel: kPairBytes bytes, widened one k at a time.
struct BFloat16Pair {
  static constexpr int kPairBytes = 64;
  static CHORAL_INLINE __m512 even(const std::byte* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_load_si512(p), 16));
  }
  static CHORAL_INLINE __m512 odd(const std::byte* p) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_load_si512(p), _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
  }
};

struct Float16Pair {
  static constexpr int kPairBytes = 64;
  static CHORAL_INLINE __m512 even(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static CHORAL_INLINE __m512 odd(const std::byte* p) { return even(p + 32); }
};

struct Float32Pair {
  static constexpr int kPairBytes = 128;
  static CHORAL_INLINE __m512 even(const std::byte* p) { return _mm512_load_ps(p); }
  static CHORAL_INLINE __m512 odd(const std::byte* p) { return _mm512_load_ps(p + 64); }
};

template <int R, int P>
CHORAL_INLINE void multiply_add(__m512 (&acc)[R][P], const float* x, const __m512 (&w)[P]) {
  CHORAL_UNROLL
  for (int r = 0; r < R; ++r) {
    const __m512 b = _mm512_set1_ps(x[r * kXChunk]);
    CHORAL_UNROLL
    for (int p = 0; p < P; ++p) acc[r][p] = _mm512_fmadd_ps(b, w[p], acc[r][p]);
  }
}

// One k of P panels, stored `at` floats into the wide panels where the kernel widens.
template <bool kWidens, int R, int P>
CHORAL_INLINE void one_k(__m512 (&acc)[R][P], const float* x, const __m512 (&w)[P], float* wide, int64_t wide_stride,
                         int64_t at) {
  CHORAL_UNROLL
  for (int p = 0; kWidens && p < P; ++p) _mm512_store_ps(wide + at + p * wide_stride, w[p]);
  multiply_add<R, P>(acc, x, w);
}

// Two k: even and odd weights of P panels at w, x and x + 1, and a pair of each panel fetched ahead.
template <class Pair, bool kWidens, int R, int P>
CHORAL_INLINE void step(__m512 (&acc)[R][P], const float* x, const std::byte* w, int64_t stride, const std::byte* ahead,
                        int64_t ahead_stride, float* wide, int64_t wide_stride, int64_t at) {
  __m512 v[P];
  CHORAL_UNROLL
  for (int p = 0; p < P; ++p) v[p] = Pair::even(w + p * stride);
  one_k<kWidens, R, P>(acc, x, v, wide, wide_stride, at);
  CHORAL_UNROLL
  for (int p = 0; p < P; ++p) v[p] = Pair::odd(w + p * stride);
  one_k<kWidens, R, P>(acc, x + 1, v, wide, wide_stride, at + kPanelRows);
  CHORAL_UNROLL
  for (int p = 0; p < P; ++p) {
    _mm_prefetch(ahead + p * ahead_stride, _MM_HINT_T0);
    if (Pair::kPairBytes > 64) _mm_prefetch(ahead + p * ahead_stride + 64, _MM_HINT_T0);
  }
}

template <class Pair, bool kWidens, int R, int P>
CHORAL_TARGET void micro(const MicroArgs& args) {
  __m512 acc[R][P];
  CHORAL_UNROLL
  for (int r = 0; r < R; ++r) {
    CHORAL_UNROLL
    for (int p = 0; p < P; ++p) {
      acc[r][p] = args.resume ? _mm512_load_ps(args.out + r * args.out_stride + p * kPanelRows) : _mm512_setzero_ps();
    }
  }
  const float* x = args.x;
  const std::byte* w = args.w;
  const std::byte* ahead = args.ahead;
  const int64_t stride = args.panel_stride;
  const int64_t ahead_stride = args.ahead_panel_stride;
  float* wide = args.wide;
  const int64_t wide_stride = args.wide_stride;
  for (int64_t k = 0; k < args.k; k += kXChunk) {
    if (k == args.jump_at) ahead += args.ahead_jump;
    const int64_t left = args.k - k;
    if (left >= kXChunk) {  // whole chunks are unrolled: counting would take the multipliers' ports
      CHORAL_UNROLL
      for (int i = 0; i < kXChunk; i += 2, ahead += args.ahead_step) {
        step<Pair, kWidens, R, P>(acc, x + i, w + i / 2 * Pair::kPairBytes, stride, ahead, ahead_stride, wide, wide_stride,
                                  i * kPanelRows);
      }
      if (kWidens) wide += kXChunk * kPanelRows;
      w += kXChunk / 2 * Pair::kPairBytes;
      x += R * kXChunk;
      continue;
    }
    for (int64_t i = 0; i + 1 < left; i += 2, w += Pair::kPairBytes, ahead += args.ahead_step) {
      step<Pair, kWidens, R, P>(acc, x + i, w, stride, ahead, ahead_stride, wide, wide_stride, i * kPanelRows);
    }
    if (left % 2 != 0) {
      __m512 v[P];
      CHORAL_UNROLL
      for (int p = 0; p < P; ++p) v[p] = Pair::even(w + p * stride);
      one_k<kWidens, R, P>(acc, x + left - 1, v, wide, wide_stride, (left - 1) * kPanelRows);
    }
  }
  CHORAL_UNROLL
  for (int r = 0; r < R; ++r) {
    CHORAL_UNROLL
    for (int p = 0; p < P; ++p) _mm512_store_ps(args.out + r * args.out_stride + p * kPanelRows, acc[r][p]);
  }
}

// Indexed by [log2 of panels][rows - 1].
template <class Pair, int P, size_t... kRow>
constexpr std::array<MicroKernel, kMaxRows> by_rows(std::index_sequence<kRow...>) {
  std::array<MicroKernel, kMaxRows> table{};
  ((table[kRow] = &micro<Pair, false, static_cast<int>(kRow) + 1, P>), ...);
  return table;
}
// Indexed by [rows - kMaxRows / 2].
template <class Pair, int P, size_t... kRow>
constexpr std::array<MicroKernel, sizeof...(kRow)> widening_by_rows(std::index_sequence<kRow...>) {
  return {&micro<Pair, true, static_cast<int>(kRow) + kMaxRows / 2, P>...};
}
using WideningRows = std::make_index_sequence<kMaxRows - kMaxRows / 2 + 1>;
template <class Pair>
constexpr std::array<std::array<MicroKernel, kMaxRows>, 3> kMicro{
    by_rows<Pair, 1>(std::make_index_sequence<kMaxRows>()),
    by_rows<Pair, 2>(std::make_index_sequence<kMaxRows>()),
    by_rows<Pair, 4>(std::make_index_sequence<kMaxRowsOfFourPanels>()),
};

int panels_for(int rows) { return rows <= kMaxRowsOfFourPanels ? 4 : 2; }

MicroKernel find_micro(DType weights, int rows, int panels) {
  const auto p = static_cast<size_t>(panels / 2);
  const auto r = static_cast<size_t>(rows - 1);
  switch (weights) {
    case DType::kBF16: return kMicro<BFloat16Pair>.at(p).at(r);
    case DType::kF16: return kMicro<Float16Pair>.at(p).at(r);
    default: return kMicro<Float32Pair>.at(p).at(r);
  }
}

template <class Pair>
constexpr std::array kWidening{widening_by_rows<Pair, 1>(WideningRows()), widening_by_rows<Pair, 2>(WideningRows())};

MicroKernel find_widening(DType weights, int rows, int panels) {
  CHORAL_DCHECK(weights != DType::kF32, "float32 panels are read in place");
  const auto p = static_cast<size_t>(panels / 2);
  const auto r = static_cast<size_t>(rows - kMaxRows / 2);
  return weights == DType::kBF16 ? kWidening<BFloat16Pair>.at(p).at(r) : kWidening<Float16Pair>.at(p).at(r);
}

}  // namespace

const FloatKernels& avx512_float_kernels() {
  static constexpr FloatKernels kKernels{"avx512 fma", kMaxRows,   kMaxInPlaceTiles, kMaxRows,        2,
                                         panels_for,   find_micro, find_widening,    finish_tile_avx2};
  return kKernels;
}

}  // namespace choral::kernels
