// AVX2 micro-kernels of gemm_float_kernels.h: two ymm for a panel's 16 channels. 6 rows × 1 panel hold 12 of 16 registers;
// one row goes over 4 panels (8 registers, four streams), two and three rows over 2.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "kernels/gemm/gemm_float_kernels.h"
#include "kernels/x86/gemm_float_finish.h"

#define CHORAL_TARGET __attribute__((target("avx2,fma,f16c")))
#define CHORAL_INLINE __attribute__((target("avx2,fma,f16c"), always_inline)) inline
#define CHORAL_UNROLL _Pragma("GCC unroll 16")

namespace choral::kernels {
namespace {

constexpr int kMaxRows = 6;
constexpr int kMaxRowsOfTwoPanels = 3;
constexpr int kMaxRowsOfFourPanels = 1;
constexpr int kMaxInPlaceTiles = 6;  // so few tiles lose more by the floats' place in L1 than by widening again
constexpr int kHalf = 8;             // channels of a register

// Two k of half a panel (half 0 or 1), widened one k at a time; a pair of the whole panel is kPairBytes bytes.
struct BFloat16Pair {
  static constexpr int kPairBytes = 64;
  static CHORAL_INLINE __m256i load(const std::byte* p, int half) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p) + half);
  }
  static CHORAL_INLINE __m256 even(const std::byte* p, int half) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(load(p, half), 16));
  }
  static CHORAL_INLINE __m256 odd(const std::byte* p, int half) {
    return _mm256_castsi256_ps(_mm256_and_si256(load(p, half), _mm256_set1_epi32(static_cast<int>(0xFFFF0000u))));
  }
};

struct Float16Pair {
  static constexpr int kPairBytes = 64;
  static CHORAL_INLINE __m256 even(const std::byte* p, int half) {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p) + half));
  }
  static CHORAL_INLINE __m256 odd(const std::byte* p, int half) { return even(p + 32, half); }
};

struct Float32Pair {
  static constexpr int kPairBytes = 128;
  static CHORAL_INLINE __m256 even(const std::byte* p, int half) {
    return _mm256_load_ps(reinterpret_cast<const float*>(p) + half * kHalf);
  }
  static CHORAL_INLINE __m256 odd(const std::byte* p, int half) { return even(p + 64, half); }
};

// H registers: two for each panel.
template <int R, int H>
CHORAL_INLINE void multiply_add(__m256 (&acc)[R][H], const float* x, const __m256 (&w)[H]) {
  CHORAL_UNROLL
  for (int r = 0; r < R; ++r) {
    const __m256 b = _mm256_broadcast_ss(x + r * kXChunk);
    CHORAL_UNROLL
    for (int h = 0; h < H; ++h) acc[r][h] = _mm256_fmadd_ps(b, w[h], acc[r][h]);
  }
}

// One k of H halves of panels, stored `at` floats into the wide panels where the kernel widens.
template <bool kWidens, int R, int H>
CHORAL_INLINE void one_k(__m256 (&acc)[R][H], const float* x, const __m256 (&w)[H], float* wide, int64_t wide_stride,
                         int64_t at) {
  CHORAL_UNROLL
  for (int h = 0; kWidens && h < H; ++h) _mm256_store_ps(wide + at + h / 2 * wide_stride + h % 2 * kHalf, w[h]);
  multiply_add<R, H>(acc, x, w);
}

// Two k: even and odd weights of H halves of panels at w, x and x + 1, and a pair of each panel fetched ahead.
template <class Pair, bool kWidens, int R, int H>
CHORAL_INLINE void step(__m256 (&acc)[R][H], const float* x, const std::byte* w, int64_t stride, const std::byte* ahead,
                        int64_t ahead_stride, float* wide, int64_t wide_stride, int64_t at) {
  __m256 v[H];
  CHORAL_UNROLL
  for (int h = 0; h < H; ++h) v[h] = Pair::even(w + h / 2 * stride, h % 2);
  one_k<kWidens, R, H>(acc, x, v, wide, wide_stride, at);
  CHORAL_UNROLL
  for (int h = 0; h < H; ++h) v[h] = Pair::odd(w + h / 2 * stride, h % 2);
  one_k<kWidens, R, H>(acc, x + 1, v, wide, wide_stride, at + kPanelRows);
  CHORAL_UNROLL
  for (int p = 0; p < H / 2; ++p) {
    _mm_prefetch(ahead + p * ahead_stride, _MM_HINT_T0);
    if (Pair::kPairBytes > 64) _mm_prefetch(ahead + p * ahead_stride + 64, _MM_HINT_T0);
  }
}

template <class Pair, bool kWidens, int R, int P>
CHORAL_TARGET void micro(const MicroArgs& args) {
  constexpr int kH = 2 * P;
  __m256 acc[R][kH];
  CHORAL_UNROLL
  for (int r = 0; r < R; ++r) {
    CHORAL_UNROLL
    for (int h = 0; h < kH; ++h) {
      acc[r][h] = args.resume ? _mm256_load_ps(args.out + r * args.out_stride + h * kHalf) : _mm256_setzero_ps();
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
        step<Pair, kWidens, R, kH>(acc, x + i, w + i / 2 * Pair::kPairBytes, stride, ahead, ahead_stride, wide, wide_stride,
                                   i * kPanelRows);
      }
      if (kWidens) wide += kXChunk * kPanelRows;
      w += kXChunk / 2 * Pair::kPairBytes;
      x += R * kXChunk;
      continue;
    }
    for (int64_t i = 0; i + 1 < left; i += 2, w += Pair::kPairBytes, ahead += args.ahead_step) {
      step<Pair, kWidens, R, kH>(acc, x + i, w, stride, ahead, ahead_stride, wide, wide_stride, i * kPanelRows);
    }
    if (left % 2 != 0) {
      __m256 v[kH];
      CHORAL_UNROLL
      for (int h = 0; h < kH; ++h) v[h] = Pair::even(w + h / 2 * stride, h % 2);
      one_k<kWidens, R, kH>(acc, x + left - 1, v, wide, wide_stride, (left - 1) * kPanelRows);
    }
  }
  CHORAL_UNROLL
  for (int r = 0; r < R; ++r) {
    CHORAL_UNROLL
    for (int h = 0; h < kH; ++h) _mm256_store_ps(args.out + r * args.out_stride + h * kHalf, acc[r][h]);
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
    by_rows<Pair, 2>(std::make_index_sequence<kMaxRowsOfTwoPanels>()),
    by_rows<Pair, 4>(std::make_index_sequence<kMaxRowsOfFourPanels>()),
};

int panels_for(int rows) {
  if (rows <= kMaxRowsOfFourPanels) return 4;
  return rows <= kMaxRowsOfTwoPanels ? 2 : 1;
}

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
constexpr auto kWidening = widening_by_rows<Pair, 1>(WideningRows());

MicroKernel find_widening(DType weights, int rows, int) {
  CHORAL_DCHECK(weights != DType::kF32, "float32 panels are read in place");
  const auto r = static_cast<size_t>(rows - kMaxRows / 2);
  return weights == DType::kBF16 ? kWidening<BFloat16Pair>.at(r) : kWidening<Float16Pair>.at(r);
}

}  // namespace

CHORAL_TARGET void finish_tile_avx2(MatrixView<const float> tile, const float* bias, bool accumulate, MatrixView<float> y) {
  for (int64_t i = 0; i < tile.rows; ++i) {
    const float* from = tile.row(i);
    float* to = y.row(i);
    int64_t j = 0;
    for (; j + kHalf <= tile.cols; j += kHalf) {
      __m256 v = _mm256_loadu_ps(from + j);
      if (bias != nullptr) v = _mm256_add_ps(v, _mm256_loadu_ps(bias + j));
      if (accumulate) v = _mm256_add_ps(v, _mm256_loadu_ps(to + j));
      _mm256_storeu_ps(to + j, v);
    }
    for (; j < tile.cols; ++j) {
      float v = from[j];
      if (bias != nullptr) v += bias[j];
      to[j] = accumulate ? v + to[j] : v;
    }
  }
}

const FloatKernels& avx2_float_kernels() {
  static constexpr FloatKernels kKernels{"avx2 fma", kMaxRows,   kMaxInPlaceTiles, kMaxRows,        1,
                                         panels_for, find_micro, find_widening,    finish_tile_avx2};
  return kKernels;
}

}  // namespace choral::kernels
