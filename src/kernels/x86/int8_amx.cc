// Int8 products on the tile unit (AMX-INT8) for more rows than a VNNI tile has: TDPBSUD adds, for 16 rows and 16 channels, 64
// products of signed x and unsigned w (as stored, w + 128) to each int32, without saturation. Whole tiles of 64 k are its part;
// what is left of k, groups too short to pay and the floats at the end are the VNNI kernels', which go on from the sums. Tile
// registers belong to the thread: configured and freed in each call.
#include <algorithm>

#include "kernels/gemm/int8/int8_kernels.h"
#include "kernels/gemm/int8/int8_panels.h"
#include "kernels/x86/intrinsics.h"

#define CHORAL_AMX __attribute__((target("amx-tile,amx-int8,avx512f,avx512bw,avx512dq,avx512vl")))

namespace choral::kernels::x86 {
namespace {

constexpr int kHeight = 16;         // rows of a tile
constexpr int64_t kTileSteps = 16;  // of 4 k
constexpr int64_t kTileBytes = kTileSteps * kInt8StepBytes;
constexpr int64_t kTileK = kTileSteps * kInt8Step;
constexpr int64_t kLeastSteps = 2 * kTileSteps;  // less is not worth configuring tiles

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {};
};

// Lines of the next panels, as many as are read.
template <int P>
void fetch_tile(const Int8Args& args, const std::byte*& line, int64_t& left) {
  for (int64_t i = 0; i < kTileSteps && left > 0; ++i, line += kInt8StepBytes) {
    for (int p = 0; p < P; ++p) _mm_prefetch(reinterpret_cast<const char*>(line + p * args.panel_bytes), _MM_HINT_T0);
    if (--left == args.jump_at) line += args.jump;
  }
}

// Sums of `tiles` tiles of 64 k: T row tiles over P panels. Tiles 0-3 are sums (row tile, panel), 4 and 5 x, 6 and 7 weights.
template <int T, int P>
CHORAL_AMX void add_tiles(const Int8Args& args, int64_t tiles) {
  const int height0 = T == 1 ? args.rows : (args.rows + 1) / 2, height1 = args.rows - height0;
  TileConfig config;
  for (const int tile : {0, 1, 4}) config.rows[tile] = static_cast<uint8_t>(height0);
  for (const int tile : {2, 3, 5}) config.rows[tile] = static_cast<uint8_t>(T == 1 ? height0 : height1);
  for (const int tile : {6, 7}) config.rows[tile] = static_cast<uint8_t>(kTileSteps);
  asm volatile("" : : "r"(&config) : "memory");  // g++'s intrinsic names only the first bytes of the config as read
  _tile_loadconfig(&config);
  const int64_t stride = args.stride * static_cast<int64_t>(sizeof(int32_t));
  int32_t *sums0 = args.sums, *sums1 = args.sums + height0 * args.stride;
  if (args.resume) {
    _tile_loadd(0, sums0, stride);
    if constexpr (P > 1) _tile_loadd(1, sums0 + kInt8Lanes, stride);
    if constexpr (T > 1) _tile_loadd(2, sums1, stride);
    if constexpr (T > 1 && P > 1) _tile_loadd(3, sums1 + kInt8Lanes, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const std::byte *x0 = args.x, *x1 = args.x + height0 * args.x_row_bytes, *w = args.weights, *line = args.ahead;
  int64_t left = args.lines;
  for (int64_t i = 0; i < tiles; ++i, x0 += kTileK, x1 += kTileK, w += kTileBytes) {
    _tile_loadd(4, x0, args.x_row_bytes);
    _tile_loadd(6, w, kInt8StepBytes);
    _tile_dpbsud(0, 4, 6);
    if constexpr (P > 1) {
      _tile_loadd(7, w + args.panel_bytes, kInt8StepBytes);
      _tile_dpbsud(1, 4, 7);
    }
    if constexpr (T > 1) {
      _tile_loadd(5, x1, args.x_row_bytes);
      _tile_dpbsud(2, 5, 6);
      if constexpr (P > 1) _tile_dpbsud(3, 5, 7);
    }
    fetch_tile<P>(args, line, left);
  }
  _tile_stored(0, sums0, stride);
  if constexpr (P > 1) _tile_stored(1, sums0 + kInt8Lanes, stride);
  if constexpr (T > 1) _tile_stored(2, sums1, stride);
  if constexpr (T > 1 && P > 1) _tile_stored(3, sums1 + kInt8Lanes, stride);
  _tile_release();
}

// The same arguments for the VNNI kernels, some rows at a time.
void run_vnni(const Int8Args& args) {
  const Int8Kernels& vnni = vnni_int8_kernels();
  const int tiles = static_cast<int>(ceil_div(args.rows, vnni.tile_rows));
  for (int t = 0; t < tiles; ++t) {
    const int begin = args.rows * t / tiles;
    Int8Args some = args;
    if (t > 0) some.lines = 0;  // the first tile fetches for all
    some.rows = args.rows * (t + 1) / tiles - begin;
    some.x += begin * args.x_row_bytes;
    some.starts += begin * args.starts_stride;
    if (some.row_scales != nullptr) some.row_scales += begin;
    some.sums += begin * args.stride;
    some.out += begin * args.stride;
    vnni.micro(some.rows, args.panels)(some);
  }
}

template <int P>
void run(const Int8Args& args) {
  const int64_t tiles = args.steps / kTileSteps;
  if (args.groups > 1 || args.steps < kLeastSteps) return run_vnni(args);
  args.rows <= kHeight ? add_tiles<1, P>(args, tiles) : add_tiles<2, P>(args, tiles);
  Int8Args rest = args;
  rest.weights += tiles * kTileBytes;
  rest.x += tiles * kTileK;
  rest.steps -= tiles * kTileSteps;
  rest.resume = true;
  rest.lines = 0;
  if (rest.steps > 0 || rest.complete) run_vnni(rest);
}

int panels_for(int) { return 2; }
Int8Micro find_micro(int, int panels) { return panels == 2 ? run<2> : run<1>; }

}  // namespace

const Int8Kernels& amx_int8_kernels() {
  static constexpr Int8Kernels kKernels{"amx tiles, avx512 vnni", false, 2 * kHeight, 2 * kHeight, 1024, panels_for, find_micro};
  return kKernels;
}

}  // namespace choral::kernels::x86
