#ifndef __clang__  // GCC bug 105593: see gemm_float_avx512.cc
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include "kernels/x86/gemm_float_amx.h"

#include <immintrin.h>

#include <algorithm>

#include "base/checked_math.h"

#define CHORAL_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512cd")))
#define CHORAL_AMX_INLINE \
  __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512cd"), always_inline)) inline
#define CHORAL_UNROLL _Pragma("GCC unroll 16")

namespace choral::kernels {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileK = 32;         // of a tile of x or of weights: 64 bytes a row
constexpr int64_t kWeightTile = 1024;  // bytes: 16 pairs of k × 16 channels × 2
constexpr int64_t kTerms = 3;
constexpr int64_t kBlockK = 512;       // the weights of two panels are 32 KiB: L1
constexpr int64_t kBlockRows = 256;    // their x of one k block is 768 KiB: L2
constexpr int64_t kAheadBytes = 2048;  // prefetch distance of a stream in memory
constexpr int64_t kFewRowsPanels = 3;
constexpr int64_t kMaxTilePanels = 8;
constexpr int64_t kMaxDirectPanels = 64;

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {};
};

// One row tile: accumulators 0-2, weights in 3-5, terms of x in turn in 6 and 7.
// Two row tiles: accumulators 0, 1 and 2, 3, their x in 4 and 5, weights in 6 and 7.
TileConfig one_row_tile(int height) {
  TileConfig config;
  for (const int tile : {0, 1, 2, 6, 7}) config.rows[tile] = static_cast<uint8_t>(height);
  for (const int tile : {3, 4, 5}) config.rows[tile] = kTileRows;
  return config;
}
TileConfig two_row_tiles(int height0, int height1) {
  TileConfig config;
  for (const int tile : {0, 1, 4}) config.rows[tile] = static_cast<uint8_t>(height0);
  for (const int tile : {2, 3, 5}) config.rows[tile] = static_cast<uint8_t>(height1);
  for (const int tile : {6, 7}) config.rows[tile] = kTileRows;
  return config;
}

CHORAL_AMX_INLINE void configure(const TileConfig& config) {
  asm volatile("" : : "r"(&config) : "memory");  // g++'s intrinsic names only the first bytes of the config as read
  _tile_loadconfig(&config);
}

// Rows [0, rows) of x as row tiles of at most 16, near-equal; tile t: [k / 32][lo, mid, hi][height][32] bf16, k padded with zeros.
struct SplitRows {
  const uint16_t* data;
  int64_t rows, tiles, padded_k;

  int64_t begin(int64_t t) const { return t * rows / tiles; }
  int height(int64_t t) const { return static_cast<int>(begin(t + 1) - begin(t)); }
  const uint16_t* tile(int64_t t, int64_t k0) const { return data + (begin(t) * padded_k + k0 * height(t)) * kTerms; }
};

// The upper halves of 32 floats, in order.
CHORAL_AMX_INLINE __m512i upper_halves(__m512i a, __m512i b) {
  const __m512i odd = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21, 19, 17, 15,
                                       13, 11, 9, 7, 5, 3, 1);
  return _mm512_permutex2var_epi16(a, odd, b);
}

// x = hi + mid + lo, each the upper half of its float; exact. A NaN or infinity is all in hi.
CHORAL_AMX_INLINE void split(__m512 x, __m512i& hi, __m512i& mid, __m512i& lo) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  const __mmask16 finite = _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(__builtin_inff()), _CMP_LT_OQ);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i bits = _mm512_castps_si512(x);
  hi = _mm512_and_si512(bits, upper);
  const __m512 rest = _mm512_maskz_sub_ps(finite, x, _mm512_castsi512_ps(hi));
  mid = _mm512_and_si512(_mm512_castps_si512(rest), upper);
  lo = _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(mid)));
  hi = _mm512_mask_or_epi32(hi, nan, bits, _mm512_set1_epi32(0x00400000));  // its payload may be in the lower half
}

// `count` of 32 elements, the rest zero, to the three terms, `term_stride` elements apart.
CHORAL_AMX_INLINE void split_chunk(const float* x, int64_t count, uint16_t* out, int64_t term_stride) {
  const auto mask = static_cast<uint32_t>((uint64_t{1} << count) - 1);
  const __m512 a = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), x);
  const __m512 b = count > 16 ? _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), x + 16) : _mm512_setzero_ps();
  __m512i hi[2], mid[2], lo[2];
  split(a, hi[0], mid[0], lo[0]);
  split(b, hi[1], mid[1], lo[1]);
  _mm512_store_si512(out, upper_halves(lo[0], lo[1]));
  _mm512_store_si512(out + term_stride, upper_halves(mid[0], mid[1]));
  _mm512_store_si512(out + 2 * term_stride, upper_halves(hi[0], hi[1]));
}

CHORAL_AMX void split_rows(const SplitRows& split, MatrixView<const float> x, int64_t block0, int64_t block1, uint16_t* out) {
  for (int64_t t = 0; t < split.tiles; ++t) {
    const int64_t height = split.height(t);
    for (int64_t r = 0; r < height; ++r) {
      const float* row = x.row(split.begin(t) + r);
      uint16_t* target = out + (split.tile(t, 0) - split.data) + r * kTileK;
      for (int64_t b = block0; b < block1; ++b) {
        split_chunk(row + b * kTileK, std::min(kTileK, x.cols - b * kTileK), target + b * kTerms * height * kTileK, height * kTileK);
      }
    }
  }
}

// One tile of each of P panels, line by line in turn: P streams, as the plain kernels have.
template <int P>
CHORAL_AMX_INLINE void prefetch_tiles(const std::byte* p, int64_t panel_bytes) {
  CHORAL_UNROLL
  for (int i = 0; i < 16; ++i) {
    CHORAL_UNROLL
    for (int panel = 0; panel < P; ++panel) _mm_prefetch(p + panel * panel_bytes + i * 64, _MM_HINT_T0);
  }
}

// One row tile over P <= 3 panels from end to end of k. Products of one accumulator stand P apart, because each waits 52 cycles for
// the one before. Each panel's next kilobytes are fetched; near its end those of the next group.
template <int P>
CHORAL_AMX void run_one_row_tile(const uint16_t* x, int height, const std::byte* w, int64_t panel_bytes, float* out, int64_t out_stride) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  const int64_t term = height * kTileK;
  const int64_t tiles = panel_bytes / kWeightTile;
  for (int64_t b = 0; b < tiles; ++b, x += kTerms * term, w += kWeightTile) {
    _tile_loadd(6, x, 64);
    _tile_loadd(3, w, 64);
    _tile_dpbf16ps(0, 6, 3);
    if constexpr (P > 1) {
      _tile_loadd(4, w + panel_bytes, 64);
      _tile_dpbf16ps(1, 6, 4);
    }
    if constexpr (P > 2) {
      _tile_loadd(5, w + 2 * panel_bytes, 64);
      _tile_dpbf16ps(2, 6, 5);
    }
    _tile_loadd(7, x + term, 64);
    _tile_dpbf16ps(0, 7, 3);
    if constexpr (P > 1) _tile_dpbf16ps(1, 7, 4);
    if constexpr (P > 2) _tile_dpbf16ps(2, 7, 5);
    _tile_loadd(6, x + 2 * term, 64);
    _tile_dpbf16ps(0, 6, 3);
    if constexpr (P > 1) _tile_dpbf16ps(1, 6, 4);
    if constexpr (P > 2) _tile_dpbf16ps(2, 6, 5);
    prefetch_tiles<P>(w + kAheadBytes + (b + kAheadBytes / kWeightTile < tiles ? 0 : (P - 1) * panel_bytes), panel_bytes);
  }
  const int64_t stride = out_stride * static_cast<int64_t>(sizeof(float));
  _tile_stored(0, out, stride);
  if constexpr (P > 1) _tile_stored(1, out + kPanelRows, stride);
  if constexpr (P > 2) _tile_stored(2, out + 2 * kPanelRows, stride);
}

struct PairArgs {
  const uint16_t *x0, *x1;
  int64_t term0, term1;  // elements of one term's tile
  const std::byte* w;
  int64_t panel_bytes;
  int64_t tiles;  // of 32 k
  float *out0, *out1;
  int64_t out_stride;
  bool resume;
  const std::byte* ahead;  // of each panel, a tile to fetch for every tile used
};

// Two row tiles over P panels, one block of k. 12 products for 8 tile loads.
template <int P>
CHORAL_AMX void run_two_row_tiles(const PairArgs& args) {
  const int64_t stride = args.out_stride * static_cast<int64_t>(sizeof(float));
  if (args.resume) {
    _tile_loadd(0, args.out0, stride);
    _tile_loadd(2, args.out1, stride);
    if constexpr (P > 1) {
      _tile_loadd(1, args.out0 + kPanelRows, stride);
      _tile_loadd(3, args.out1 + kPanelRows, stride);
    }
  } else {
    _tile_zero(0);
    _tile_zero(2);
    if constexpr (P > 1) {
      _tile_zero(1);
      _tile_zero(3);
    }
  }
  const uint16_t* x0 = args.x0;
  const uint16_t* x1 = args.x1;
  const std::byte* w = args.w;
  const std::byte* ahead = args.ahead;
  for (int64_t b = 0; b < args.tiles; ++b, w += kWeightTile) {
    _tile_loadd(6, w, 64);
    if constexpr (P > 1) _tile_loadd(7, w + args.panel_bytes, 64);
    CHORAL_UNROLL
    for (int term = 0; term < kTerms; ++term, x0 += args.term0, x1 += args.term1) {
      _tile_loadd(4, x0, 64);
      _tile_loadd(5, x1, 64);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (P > 1) _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (P > 1) _tile_dpbf16ps(3, 5, 7);
    }
    prefetch_tiles<P>(ahead, args.panel_bytes);
    ahead += kWeightTile;
  }
  _tile_stored(0, args.out0, stride);
  _tile_stored(2, args.out1, stride);
  if constexpr (P > 1) {
    _tile_stored(1, args.out0 + kPanelRows, stride);
    _tile_stored(3, args.out1 + kPanelRows, stride);
  }
}

struct Job {
  const FloatPanels& w;
  const SplitRows& x;
  const Epilogue& epilogue;
  int64_t first_row;
  MatrixView<float> y;

  void finish(int64_t p0, int64_t p1, float* out, int64_t out_stride) const {
    const int64_t col = p0 * kPanelRows;
    const int64_t cols = std::min(p1 * kPanelRows, w.n) - col;
    finish_tile(avx512_float_kernels(), epilogue, {out, x.rows, cols, out_stride}, first_row, col, y);
  }

  CHORAL_AMX void run_few_rows(int64_t p0, int64_t p1, float* out) const {
    const int64_t out_stride = (p1 - p0) * kPanelRows;
    const int height = x.height(0);
    const TileConfig config = one_row_tile(height);
    configure(config);
    for (int64_t p = p0; p < p1;) {
      const int64_t group = std::min(kFewRowsPanels, p1 - p);
      const auto run = group == 3 ? run_one_row_tile<3> : group == 2 ? run_one_row_tile<2> : run_one_row_tile<1>;
      run(x.data, height, w.panel(p), w.panel_bytes, out + (p - p0) * kPanelRows, out_stride);
      p += group;
    }
    _tile_release();
    finish(p0, p1, out, out_stride);
  }

  CHORAL_AMX void run_many_rows(int64_t p0, int64_t p1, float* out) const {
    const int64_t out_stride = (p1 - p0) * kPanelRows;
    int height0 = 0, height1 = 0;
    TileConfig config;
    for (int64_t k0 = 0; k0 < x.padded_k; k0 += kBlockK) {
      const int64_t k = std::min(kBlockK, x.padded_k - k0);
      for (int64_t t = 0; t < x.tiles; t += 2) {
        if (x.height(t) != height0 || x.height(t + 1) != height1) {
          height0 = x.height(t);
          height1 = x.height(t + 1);
          config = two_row_tiles(height0, height1);
          configure(config);
        }
        for (int64_t p = p0; p < p1;) {
          const int64_t group = p1 - p >= 2 ? 2 : 1;
          const std::byte* first = w.panel(p) + k0 * w.k_bytes();
          // The first row tiles fetch the next panels' block from memory, the others the next weights of their own from L2.
          const std::byte* ahead = first + 2 * kWeightTile;
          if (t == 0) ahead = p + group < p1 || k0 + k == x.padded_k ? first + group * w.panel_bytes : w.panel(p0) + (k0 + k) * w.k_bytes();
          const PairArgs args{x.tile(t, k0),
                              x.tile(t + 1, k0),
                              height0 * kTileK,
                              height1 * kTileK,
                              first,
                              w.panel_bytes,
                              k / kTileK,
                              out + x.begin(t) * out_stride + (p - p0) * kPanelRows,
                              out + x.begin(t + 1) * out_stride + (p - p0) * kPanelRows,
                              out_stride,
                              k0 != 0,
                              ahead};
          group == 2 ? run_two_row_tiles<2>(args) : run_two_row_tiles<1>(args);
          p += group;
        }
      }
    }
    _tile_release();
    finish(p0, p1, out, out_stride);
  }
};

void multiply_rows(const FloatPanels& w, const Context& ctx, MatrixView<const float> x, int64_t first_row, const Epilogue& epilogue,
                   MatrixView<float> y) {
  const Arena::Mark mark(ctx.scratch);
  const bool few = x.rows <= kTileRows;
  const int threads = ctx.pool.size();
  const int64_t task = panels_per_task(w.panels(), threads, few ? kFewRowsPanels : 2, few ? kMaxDirectPanels : kMaxTilePanels);

  const int64_t padded_k = round_up(w.k, kTileK);
  uint16_t* terms = ctx.scratch.make<uint16_t>(static_cast<size_t>(x.rows * padded_k * kTerms)).data();
  const SplitRows split{terms, x.rows, few ? 1 : 2 * ceil_div(x.rows, 2 * kTileRows), padded_k};
  const int64_t blocks = padded_k / kTileK;
  if (x.rows * blocks <= 1024) {
    split_rows(split, x, 0, blocks, terms);
  } else {
    ctx.pool.parallel_for(blocks, 8, [&](int64_t b0, int64_t b1, int) { split_rows(split, x, b0, b1, terms); });
  }

  const int64_t thread_floats = x.rows * task * kPanelRows;
  float* scratch = ctx.scratch.make<float>(static_cast<size_t>(thread_floats * threads)).data();
  const Job job{w, split, epilogue, first_row, y};
  ctx.pool.parallel_for(w.panels(), task, [&](int64_t p0, int64_t p1, int thread) {
    float* out = scratch + thread * thread_floats;
    for (int64_t p = p0; p < p1; p += task) {
      const int64_t end = std::min(p + task, p1);
      few ? job.run_few_rows(p, end, out) : job.run_many_rows(p, end, out);
    }
  });
}

}  // namespace

void multiply_panels_amx(const FloatPanels& w, const Context& ctx, MatrixView<const float> x, const Epilogue& epilogue,
                         MatrixView<float> y) {
  CHORAL_DCHECK(w.dtype == DType::kBF16 && x.cols == w.k && y.cols == w.n && x.rows == y.rows, "multiply: x [m, k], y [m, n]");
  const int64_t blocks = ceil_div(x.rows, kBlockRows);
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t begin = b * x.rows / blocks;
    const int64_t end = (b + 1) * x.rows / blocks;
    multiply_rows(w, ctx, x.sub_rows(begin, end - begin), begin, epilogue, y);
  }
}

CHORAL_AMX double burn_amx_bf16(int64_t steps) {
  const TileConfig config = two_row_tiles(kTileRows, kTileRows);
  configure(config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t i = 0; i < steps; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return static_cast<double>(steps) * 4 * kTileRows * kTileRows * kTileK * 2;
}

}  // namespace choral::kernels
