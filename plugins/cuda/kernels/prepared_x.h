// x as products read it, in scratch: 8 rows make a tile, which has for each block of 64 columns what mma's B fragments are made
// of (ptx.h), 16 bytes a lane at a time. Rows and columns beyond x are zeros.
//   planes of 16 bits   [tile][block][4 k16][lane] {high b0, high b1, low b0, low b1};   x = high + low to 16 bits or more
//   int8 rows           [tile][block][lane] {k32 0: b0, b1, k32 1: b0, b1}
//   f32                 [tile][block][8 rows][64]
// and a factor for each row, by which its sums are multiplied in the end.
#pragma once

#include "packed_weight.h"
#include "rows.h"

namespace choral_cuda {

inline constexpr int kTokens = 8;           // of a tile
inline constexpr int64_t kSlabRows = 2048;  // of x that are prepared at a time

__host__ __device__ constexpr int prepared_block_bytes(Format format) { return format == Format::kInt8Rows ? 512 : 2048; }

struct PreparedX {
  unsigned char* tiles;
  float* factors;
  int64_t rows;
  int32_t row_tiles;
  int32_t blocks;

  __device__ __forceinline__ const unsigned char* block(Format format, int64_t tile, int64_t block) const {
    return tiles + (tile * blocks + block) * prepared_block_bytes(format);
  }
};

inline size_t prepared_bytes(const PackedWeight& w, int64_t rows) {
  const int64_t tiles = ceil_div<int64_t>(rows, kTokens);
  return static_cast<size_t>(tiles * w.blocks * prepared_block_bytes(w.format) + tiles * kTokens * sizeof(float));
}

// Sums of sections (matmul_stream_inl.h) of so many tiles of x at most lie behind the prepared rows, where they are not too
// large.
inline constexpr int kMostSplitTiles = 32;
inline constexpr size_t kMostPartBytes = size_t{64} << 20;
inline size_t part_bytes(const PackedWeight& w, int64_t rows) {
  return static_cast<size_t>(ceil_div(w.blocks, w.section_blocks) * rows * w.rows) * sizeof(float);
}
inline bool parts_fit(const PackedWeight& w, int64_t rows) { return part_bytes(w, rows) <= kMostPartBytes; }

// Prepares `rows` rows of x from `begin` on; they fit `scratch`.
cudaError_t prepare_x(const Launch& launch, const PackedWeight& w, const choral_matrix& x, int64_t begin, int64_t rows,
                      PreparedX* prepared);

}  // namespace choral_cuda
