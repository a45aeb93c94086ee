// x as products read it, in scratch: 8 rows make a tile, which has for each block of 64 columns what mma's B fragments are made
// of (ptx.h), 16 bytes a lane at a time. Rows and columns beyond x are zeros.
//   planes of 16 bits   [tile][block][4 k16][lane] {high b0, high b1, low b0, low b1};   x = high + low to 16 bits or more
//   one such plane      [tile][block][2 k32][lane] {k16 0: b0, b1, k16 1: b0, b1};   x rounded once: CHORAL_X_16
//   int8 rows           [tile][block][lane] {k32 0: b0, b1, k32 1: b0, b1}
//   f32                 [tile][block][8 rows][64]
// A warpgroup's products want registers of all lanes beside each other, the core matrices of wgmma.h, and a group of tiles comes
// to shared memory in one piece, a block of 64 columns or, where that is large, half of them:
//   planes of 16 bits   [group of tiles][block][part][tile][plane][k16 of the part][2][lane]
//   int8 rows           [group of tiles][block][tile][2 k32][2][lane]
// There is a factor for each row, by which its sums are multiplied in the end. Weights with minima want the sums of x over their
// folds, made of the planes by mma with ones for A:
//   [tile][block][fold][8 rows], for a warpgroup [group of tiles][block][tile][fold][8 rows]
#pragma once

#include "packed_weight.h"
#include "rows.h"

namespace choral_cuda {

inline constexpr int kTokens = 8;  // of a tile

// Of 16 bits, where W is multiplied by such.
__host__ __device__ constexpr int x_planes(const PackedWeight& w) { return w.activations == CHORAL_X_16 ? 1 : 2; }

__host__ __device__ constexpr int prepared_block_bytes(const PackedWeight& w) {
  return w.format == Format::kInt8Rows ? 512 : w.format == Format::kF32 ? 2048 : 1024 * x_planes(w);
}

// Sums of x over folds of a tile and a block, in floats.
__host__ __device__ constexpr int fold_sums_of_block(const PackedWeight& w) {
  return w.min_offset == 0 ? 0 : (w.group < kBlockColumns ? kBlockColumns / w.group : 1) * kTokens;
}

// In how many parts a block of a group of tiles comes.
__host__ __device__ constexpr int parts_of_block(int group_tiles, int planes) { return group_tiles * planes > 32 ? 2 : 1; }

// Of one product.
struct PreparedX {
  unsigned char* tiles;
  float* fold_sums;
  float* factors;
  uint32_t* largest;  // bits of |x|, where a kernel before has found them
  int32_t rows;
  int32_t row_tiles;
  int32_t blocks;

  template <class Operand>
  __device__ __forceinline__ const unsigned char* block(int64_t tile, int64_t block) const {
    return tiles + (tile * blocks + block) * (Operand::kXVectors * 512);
  }
  // Of a tile's block, which has `count` of them.
  __device__ __forceinline__ float* fold_sums_of(int group_tiles, int64_t tile, int64_t block, int count) const {
    return fold_sums + ((tile / group_tiles * blocks + block) * group_tiles + tile % group_tiles) * count;
  }
  // A tile's in a part, of so many bytes, for a warpgroup.
  __device__ __forceinline__ unsigned char* part(int group_tiles, int parts, int bytes, int64_t tile, int64_t block,
                                                 int part) const {
    return tiles + (((tile / group_tiles * blocks + block) * parts + part) * group_tiles + tile % group_tiles) * bytes;
  }
};

}  // namespace choral_cuda
