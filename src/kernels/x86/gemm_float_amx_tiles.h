// The tile unit's part (AMX-BF16) of y = x·Wᵀ: one or two row tiles of x in three terms (gemm_float_amx_split.h) over a few
// panels. For each block of 32 k: acc += lo·W; acc += mid·W; acc += hi·W, each one TDPBF16PS. Tile registers belong to the
// thread: a TileUnit configures them for its scope and frees them after.
#pragma once

#include <cstddef>

#include "kernels/x86/gemm_float_amx_split.h"

namespace choral::kernels {

inline constexpr int64_t kAmxTileRows = 16;

class TileUnit {
 public:
  TileUnit() = default;
  ~TileUnit();
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;

  void configure_one(int height);  // for AmxTileKernel
  void configure_two(int height0,
                     int height1);  // for AmxPairKernel; nothing to do if these heights stand
 private:
  int height0_ = 0, height1_ = 0;
};

// One row tile over P panels from end to end of k. Each panel's next kilobytes are fetched; near its end those of the next group.
struct AmxTileArgs {
  const uint16_t* x;
  int height;
  const std::byte* w;
  int64_t panel_bytes;
  float* out;
  int64_t out_stride;
  int64_t ahead_bytes;
};
using AmxTileKernel = void (*)(const AmxTileArgs&);
AmxTileKernel amx_tile_kernel(int64_t panels);  // 1, 2 or 4

// Two row tiles over P panels, one block of k.
struct AmxPairArgs {
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

using AmxPairKernel = void (*)(const AmxPairArgs&);
AmxPairKernel amx_pair_kernel(int64_t panels);  // 1 or 2

// Tile products in registers only, for the roofline: returns the flop done in `steps` rounds.
double burn_amx_bf16(int64_t steps);

}  // namespace choral::kernels
