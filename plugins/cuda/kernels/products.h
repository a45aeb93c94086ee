// What a launch multiplies: one product y = x·Wᵀ, or many whose matrices differ in their elements alone, as those of a layer's
// experts. It is passed by value, so nothing need be copied to the device first.
//
// Tiles of x follow each other over all products, each of which begins at a multiple of the tiles that a block takes: a block
// finds the one product that it belongs to by its first tile.
#pragma once

#include "prepared_x.h"

namespace choral_cuda {

struct Output {
  Rows y;  // from the first row that was prepared
  const float* bias;
  bool accumulate;
};

struct Product {
  const unsigned char* image;  // these two and the last two of its PackedWeight
  const int32_t* k_order;
  float* x;
  float* y;
  const float* bias;
  int32_t rows;  // of x
  int32_t first_tile;
  float input_scale;
  int32_t input_offset;
};

inline constexpr int kMostProducts = 128;  // of a launch: with the rest 7 of the 32 KiB that its arguments may have

template <int most>
struct Products {
  PackedWeight form;  // but for what is each product's own
  int64_t x_stride, y_stride;
  unsigned char* tiles;  // prepared, as the sums over folds and the factors of rows
  float* fold_sums;
  float* factors;
  uint32_t* largest;
  int32_t accumulate;
  int32_t block_tiles;    // of x; what the kernel is chosen by
  int32_t knows_largest;  // of each row, from a kernel before the one that prepares them
  int32_t by_warpgroups;  // the kernel on wgmma, for which x is prepared otherwise
  int32_t tile_count;
  int32_t count;
  Product of[most];

  // The product that a tile is in, or lies behind.
  __device__ __forceinline__ int find(int64_t tile) const {
    int found = 0;
    if constexpr (most > 1) {
      for (int end = count; end - found > 1;) {
        const int middle = (found + end) / 2;
        if (of[middle].first_tile <= tile) {
          found = middle;
        } else {
          end = middle;
        }
      }
    }
    return found;
  }
  __device__ __forceinline__ int32_t first_tile(int i) const { return most == 1 ? 0 : of[i].first_tile; }
  __device__ __forceinline__ PackedWeight weight(int i) const {
    PackedWeight w = form;
    w.image = of[i].image;
    w.k_order = of[i].k_order;
    w.input_scale = of[i].input_scale;
    w.input_offset = of[i].input_offset;
    return w;
  }
  __device__ __forceinline__ PreparedX x(int i) const {
    const int64_t first = first_tile(i);
    return {tiles + first * form.blocks * prepared_block_bytes(form),
            fold_sums + first * form.blocks * fold_sums_of_block(form),
            factors + first * kTokens,
            largest + first * kTokens,
            of[i].rows,
            ceil_div(of[i].rows, kTokens),
            form.blocks};
  }
  __device__ __forceinline__ Output output(int i) const { return {{of[i].y, y_stride}, of[i].bias, accumulate != 0}; }
};

// How many tiles of x a block takes of a product with so many; x of more than eight is the wide kernel's. Of one product of many,
// and of scaled weights, 16 at most.
constexpr int32_t tiles_of_block(Format format, int64_t row_tiles, bool is_one) {
  if (format == Format::kF32) return 1;
  for (const int32_t tiles : {1, 2, 4, 8, 16}) {
    if (row_tiles <= tiles) return tiles;
  }
  return is_one && !has_folds(format) ? 32 : 16;
}

inline constexpr int kMatmulWarps = 8;  // of a block

// Row tiles of W that a warp has in the kernel on wgmma.
__host__ __device__ constexpr int warpgroup_row_tiles(bool is_scaled, int block_tiles) {
  return !is_scaled && block_tiles == 16 ? 2 : 1;
}

// Of whole groups of tiles.
template <int most>
size_t prepared_bytes(const Products<most>& p) {
  return static_cast<size_t>(round_up(p.tile_count, p.block_tiles)) * p.form.blocks * prepared_block_bytes(p.form);
}
template <int most>
size_t fold_sum_bytes(const Products<most>& p) {
  return static_cast<size_t>(round_up(p.tile_count, p.block_tiles)) * p.form.blocks * fold_sums_of_block(p.form) * sizeof(float);
}
// And the factors and largest elements behind them, of each row.
template <int most>
size_t scratch_of_x(const Products<most>& p) {
  return prepared_bytes(p) + fold_sum_bytes(p) + static_cast<size_t>(p.tile_count) * kTokens * (sizeof(float) + sizeof(uint32_t));
}

// Sums of sections (matmul_stream_inl.h) of so many tiles of x at most lie behind the prepared rows, where they are not too
// large.
inline constexpr int kMostSplitTiles = 32;
inline constexpr size_t kMostPartBytes = size_t{64} << 20;
inline size_t part_bytes(const PackedWeight& w, int64_t tiles) {
  return static_cast<size_t>(ceil_div(w.blocks, w.section_blocks) * tiles * kTokens * w.rows) * sizeof(float);
}
template <int most>
bool may_split(const Products<most>& p) {
  return p.block_tiles > 2 && p.tile_count <= kMostSplitTiles && part_bytes(p.form, p.tile_count) <= kMostPartBytes;
}

}  // namespace choral_cuda
