// Many rows of x: a block has 128 of them and 128 or 64 of W, copies both through shared memory, and adds section after section.
#pragma once

#include "matmul_stream_inl.h"

namespace choral_cuda {

// Warps stand in 2 rows of W by 4 of x.
template <class Operand>
struct WideShape {
  static constexpr int kRowTiles = Operand::kScaled ? 2 : 4, kTokenTiles = 4;  // of a warp
  static constexpr int kBlockRowTiles = 2 * kRowTiles, kBlockTokenTiles = 4 * kTokenTiles;
  static constexpr int kStages = 3;
  static constexpr int kWeightVectors = kBlockRowTiles * Operand::kVectors * kWarp;  // of a stage
  static constexpr int kXVectors = kBlockTokenTiles * Operand::kXVectors * kWarp;
  static constexpr int kSumVectors = fold_sum_vectors<Operand>(kBlockTokenTiles);
  static constexpr size_t kSharedBytes = size_t{kStages} * (kWeightVectors + kXVectors + kSumVectors) * sizeof(uint4);
};

template <class Operand, int most>
__global__ void __launch_bounds__(kMatmulThreads) wide_kernel(const __grid_constant__ Products<most> products) {
  wait_for_earlier_kernels();
  using Shape = WideShape<Operand>;
  using Sum = typename Operand::Sum;
  constexpr int kRowTiles = Shape::kRowTiles, kTokenTiles = Shape::kTokenTiles, kStages = Shape::kStages;
  constexpr int kSumsAt = Shape::kWeightVectors + Shape::kXVectors, kStageVectors = kSumsAt + Shape::kSumVectors;
  uint4* shared = shared_memory<uint4>();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int product = products.find(int64_t{blockIdx.y} * Shape::kBlockTokenTiles);
  const PackedWeight w = products.weight(product);
  const PreparedX x = products.x(product);
  const int64_t all_row_tiles = ceil_div<int64_t>(w.rows, kTileRows);
  const int64_t block_row_tile = int64_t{blockIdx.x} * Shape::kBlockRowTiles,
                block_token_tile = int64_t{blockIdx.y} * Shape::kBlockTokenTiles - products.first_tile(product);
  const int warp_row_tile = warp / 4 * kRowTiles, warp_token_tile = warp % 4 * kTokenTiles;
  const int fold_steps = steps_of_fold<Operand>(w);
  const bool has_min = w.min_offset != 0;

  const auto start_copies = [&](int block) {
    uint4* stage = shared + block % kStages * kStageVectors;
    if (block < w.blocks) {
#pragma unroll
      for (int i = threadIdx.x; i < Shape::kWeightVectors; i += kMatmulThreads) {
        constexpr int kOfTile = Operand::kVectors * kWarp;
        const int64_t tile = block_row_tile + i / kOfTile;
        const unsigned char* from = w.image + (tile < all_row_tiles ? tile : 0) * w.tile_bytes +
                                    int64_t{block} * block_bytes(Operand::kFormat) + i % kOfTile * 16;
        copy_16_async(stage + i, from, tile < all_row_tiles);
      }
#pragma unroll
      for (int i = threadIdx.x; i < Shape::kXVectors; i += kMatmulThreads) {
        constexpr int kOfTile = Operand::kXVectors * kWarp;
        const int64_t tile = block_token_tile + i / kOfTile;
        const bool valid = tile < x.row_tiles;
        copy_16_async(stage + Shape::kWeightVectors + i, x.block<Operand>(valid ? tile : 0, block) + i % kOfTile * 16, valid);
      }
      if constexpr (Operand::kScaled) copy_fold_sums<Shape::kBlockTokenTiles>(stage + kSumsAt, w, x, block_token_tile, block);
    }
    commit_async_copies();
  };

  using Sums = SectionSums<Operand, kRowTiles, kTokenTiles>;
  const FoldPlaces places(w);
  FoldScales<0> scales[Sums::kFoldRows], next_scales[Sums::kFoldRows];
  const auto load_scales = [&](int block) {
    if constexpr (Operand::kScaled) {
      if (block >= w.blocks) return;
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
        next_scales[m].load(w, places, record_of(w, block_row_tile + warp_row_tile + m), block, fold_steps);
    }
  };
  load_scales(0);
  Sums sums;
  sums.clear();
  Sum total[kRowTiles][kTokenTiles][4] = {};
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) start_copies(i);
  int left = w.section_blocks;  // of the section
  for (int block = 0; block < w.blocks; ++block) {
    wait_async_copies<kStages - 2>();
    __syncthreads();  // this block's copies are everybody's, and nobody reads the stage that is filled next
    start_copies(block + kStages - 1);
    const uint4* stage = shared + block % kStages * kStageVectors;
    WeightBlock<Operand> weights[kRowTiles];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < Operand::kVectors; ++i) {
        weights[m].vectors[i] = stage[((warp_row_tile + m) * Operand::kVectors + i) * kWarp + lane];
      }
      if constexpr (Operand::kScaled) scales[m] = next_scales[m];
    }
    load_scales(block + 1);
    sums.multiply_block(
        weights, scales, fold_steps, has_min,
        [&](int n, int vector) {
          return stage[Shape::kWeightVectors + ((warp_token_tile + n) * Operand::kXVectors + vector) * kWarp + lane];
        },
        [&](int n, int fold) { return fold_sums_at(stage + kSumsAt, (warp_token_tile + n) * places.groups_of_block + fold); });
    if (--left > 0 && block + 1 < w.blocks) continue;
    left = w.section_blocks;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) add_section(total[m][n][i], sums.acc[m][n][i]);
      }
    }
    sums.clear();
  }
  wait_async_copies<0>();

  const Output out = products.output(product);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t row = (block_row_tile + warp_row_tile) * kTileRows + row_of_sum(m, i);
        const int64_t token = (block_token_tile + warp_token_tile) * kTokens + token_of_sum(n, i);
        if (token < x.rows && row < w.rows) finish<Operand>(w, x, out, token, row, total[m][n][i]);
      }
    }
  }
}

}  // namespace choral_cuda
