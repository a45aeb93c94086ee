#include "kernels/x86/gemm_float_amx_tiles.h"

#include <algorithm>

#include "kernels/gemm/packed_matrix.h"
#include "kernels/x86/intrinsics.h"

#define CHORAL_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512cd")))
#define CHORAL_AMX_INLINE \
  __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512cd"), always_inline)) inline
#define CHORAL_UNROLL _Pragma("GCC unroll 16")

namespace choral::kernels {
namespace {

constexpr int64_t kTileRows = kAmxTileRows;
constexpr int64_t kTileK = kAmxBlockK;
constexpr int64_t kTerms = kAmxTerms;
constexpr int64_t kWeightTile = 1024;  // bytes: 16 pairs of k × 16 channels × 2

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {};
};

// Tiles 0-3 are accumulators. One row tile: x terms in 4-6, weights in 7. Two row tiles (0,1 and 2,3): x in 4 and 5, weights in
// 6, 7.
TileConfig one_row_tile(int height) {
  TileConfig config;
  std::fill_n(config.rows, 7, static_cast<uint8_t>(height));
  config.rows[7] = kTileRows;
  return config;
}
TileConfig two_row_tiles(int height0, int height1) {
  TileConfig config;
  for (const int tile : {0, 1, 4}) config.rows[tile] = static_cast<uint8_t>(height0);
  for (const int tile : {2, 3, 5}) config.rows[tile] = static_cast<uint8_t>(height1);
  for (const int tile : {6, 7}) config.rows[tile] = kTileRows;
  return config;
}

CHORAL_AMX void configure(const TileConfig& config) {
  asm volatile(""
               :
               : "r"(&config)
               : "memory");  // g++'s intrinsic names only the first bytes of the
                             // config as read
  _tile_loadconfig(&config);
}

// Lines [first, first + count) of a tile of each of P panels, in turn: P streams, as the plain kernels have.
template <int P>
CHORAL_AMX_INLINE void prefetch_lines(const std::byte* p, int64_t panel_bytes, int first, int count) {
  CHORAL_UNROLL
  for (int i = first; i < first + count; ++i) {
    CHORAL_UNROLL
    for (int panel = 0; panel < P; ++panel) _mm_prefetch(p + panel * panel_bytes + i * 64, _MM_HINT_T0);
  }
}

template <int P>
CHORAL_AMX void run_one_row_tile(const AmxTileArgs& args) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const int64_t panel_bytes = args.panel_bytes;
  const int64_t term = args.height * kTileK;
  const int64_t tiles = panel_bytes / kWeightTile;
  constexpr int kShare = 16 / P;  // lines fetched beside each panel: all at once would fill the line buffers, 8 % slower
  const int64_t own_tiles = tiles - args.ahead_bytes / kWeightTile;
  const uint16_t* x = args.x;
  const std::byte* w = args.w;
  for (int64_t b = 0; b < tiles; ++b, x += kTerms * term, w += kWeightTile) {
    const std::byte* ahead = w + args.ahead_bytes + (b < own_tiles ? 0 : (P - 1) * panel_bytes);
    _tile_loadd(4, x, 64);
    _tile_loadd(5, x + term, 64);
    _tile_loadd(6, x + 2 * term, 64);
    _tile_loadd(7, w, 64);
    prefetch_lines<P>(ahead, panel_bytes, 0 * kShare, kShare);
    _tile_dpbf16ps(0, 4, 7);
    _tile_dpbf16ps(0, 5, 7);
    _tile_dpbf16ps(0, 6, 7);
    if constexpr (P > 1) {
      _tile_loadd(7, w + panel_bytes, 64);
      prefetch_lines<P>(ahead, panel_bytes, 1 * kShare, kShare);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(1, 5, 7);
      _tile_dpbf16ps(1, 6, 7);
    }
    if constexpr (P > 2) {
      _tile_loadd(7, w + 2 * panel_bytes, 64);
      prefetch_lines<P>(ahead, panel_bytes, 2 * kShare, kShare);
      _tile_dpbf16ps(2, 4, 7);
      _tile_dpbf16ps(2, 5, 7);
      _tile_dpbf16ps(2, 6, 7);
      _tile_loadd(7, w + 3 * panel_bytes, 64);
      prefetch_lines<P>(ahead, panel_bytes, 3 * kShare, kShare);
      _tile_dpbf16ps(3, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
      _tile_dpbf16ps(3, 6, 7);
    }
  }
  const int64_t stride = args.out_stride * static_cast<int64_t>(sizeof(float));
  _tile_stored(0, args.out, stride);
  if constexpr (P > 1) _tile_stored(1, args.out + kPanelRows, stride);
  if constexpr (P > 2) {
    _tile_stored(2, args.out + 2 * kPanelRows, stride);
    _tile_stored(3, args.out + 3 * kPanelRows, stride);
  }
}

// Two row tiles over P panels, one block of k. 12 products for 8 tile loads.
template <int P>
CHORAL_AMX void run_two_row_tiles(const AmxPairArgs& args) {
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
    prefetch_lines<P>(ahead, args.panel_bytes, 0, 16);
    ahead += kWeightTile;
  }
  _tile_stored(0, args.out0, stride);
  _tile_stored(2, args.out1, stride);
  if constexpr (P > 1) {
    _tile_stored(1, args.out0 + kPanelRows, stride);
    _tile_stored(3, args.out1 + kPanelRows, stride);
  }
}

CHORAL_AMX void release() { _tile_release(); }  // g++ 12 takes no target attribute on a destructor

}  // namespace

void TileUnit::configure_one(int height) { configure(one_row_tile(height)); }

void TileUnit::configure_two(int height0, int height1) {
  if (height0 == height0_ && height1 == height1_) return;
  height0_ = height0;
  height1_ = height1;
  configure(two_row_tiles(height0, height1));
}

TileUnit::~TileUnit() { release(); }

AmxTileKernel amx_tile_kernel(int64_t panels) {
  return panels == 4 ? run_one_row_tile<4> : panels == 2 ? run_one_row_tile<2> : run_one_row_tile<1>;
}
AmxPairKernel amx_pair_kernel(int64_t panels) { return panels == 2 ? run_two_row_tiles<2> : run_two_row_tiles<1>; }

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
