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

inline constexpr int kTokens = 8;  // of a tile

__host__ __device__ constexpr int prepared_block_bytes(Format format) { return format == Format::kInt8Rows ? 512 : 2048; }

// Of one product.
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

}  // namespace choral_cuda
