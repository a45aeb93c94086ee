// Many rows of x on wgmma: a block has 128 of them and 256 (scaled: 128) of W. W streams through registers, each warp's own rows;
// x goes through shared memory, where products read it themselves. They run beside the loads of what comes next. Registers are
// full of a section's sums, so the sums of the sections before lie in shared memory, each thread's its own.
#pragma once

#include "section_sums.h"

namespace choral_cuda {

template <class Operand>
struct WarpgroupShape {
  static constexpr int kRowTiles = Operand::kScaled ? 1 : 2;  // of a warp, four apart
  static constexpr int kBlockRowTiles = kMatmulWarps * kRowTiles;
  static constexpr int kStages = Operand::kXVectors == 4 ? 3 : 4;
  static constexpr int kXVectors = kWarpgroupTiles * Operand::kXVectors * kWarp;  // of a stage
  static constexpr int kSums = kRowTiles * kWarpgroupTiles * 4;                   // of a thread
  static constexpr size_t kStageBytes = kXVectors * sizeof(uint4);
  static constexpr size_t kSharedBytes = kStages * kStageBytes + size_t{kSums} * kMatmulThreads * sizeof(float);
  static_assert(kSharedBytes <= 227 << 10);
  static_assert(kBlockRowTiles * kTileRows == (Operand::kScaled ? kWarpgroupBlockRows / 2 : kWarpgroupBlockRows));
};

template <class Operand, int most>
__global__ void __launch_bounds__(kMatmulThreads) warpgroup_kernel(const __grid_constant__ Products<most> products) {
  using Shape = WarpgroupShape<Operand>;
  using Sum = typename Operand::Sum;
  using Sums = SectionSums<Operand, Shape::kRowTiles, kWarpgroupTiles>;
  constexpr int kRowTiles = Shape::kRowTiles, kStages = Shape::kStages;
  unsigned char* stages = shared_memory<unsigned char>();
  Sum* totals = reinterpret_cast<Sum*>(stages + kStages * Shape::kStageBytes) + threadIdx.x;  // [sum][thread]
  const int product = products.find(int64_t{blockIdx.y} * kWarpgroupTiles);
  const PackedWeight w = products.weight(product);
  const PreparedX x = products.x(product);
  const int64_t token_tile = int64_t{blockIdx.y} * kWarpgroupTiles - products.first_tile(product);
  // Warp w of a warpgroup has rows 16w on of each of its 64.
  const int warp = threadIdx.x / kWarp;
  const int64_t row_tile = int64_t{blockIdx.x} * Shape::kBlockRowTiles + warp / 4 * (4 * kRowTiles) + warp % 4;

  const unsigned char* records[kRowTiles];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) records[m] = record_of(w, row_tile + 4 * m);
  const auto start_copies = [&](int block) {
    unsigned char* stage = stages + block % kStages * Shape::kStageBytes;
#pragma unroll
    for (int i = threadIdx.x; i < Shape::kXVectors && block < w.blocks; i += kMatmulThreads) {
      constexpr int kOfTile = Operand::kXVectors * kWarp;
      const int64_t tile = token_tile + i / kOfTile;
      const bool valid = tile < x.row_tiles;
      copy_16_async(stage + i * 16, x.block<Operand>(valid ? tile : 0, block) + i % kOfTile * 16, valid);
    }
    commit_async_copies();
  };
  WeightBlock<Operand> ahead[2][kRowTiles];
  FoldScales scales[Sums::kFoldRows], next_scales[Sums::kFoldRows];
  const auto load = [&](int slot, int block) {
    if (block >= w.blocks) return;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) ahead[slot][m].load(records[m], block);
    if constexpr (Operand::kScaled) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) next_scales[m].load(w, records[m], block, kStepsOfBlock);
    }
  };
  load(0, 0);
#pragma unroll
  for (int i = 0; i < kStages - 2; ++i) start_copies(i);

  Sums sums;
  sums.clear_for_warpgroup();
#pragma unroll
  for (int i = 0; i < Shape::kSums; ++i) totals[i * kMatmulThreads] = 0;
  int left = w.section_blocks;
  const auto multiply_block = [&](int slot, int block) {
    wait_async_copies<kStages - 3>();
    show_to_products();
    __syncthreads();  // this block's copies are everybody's, and nobody multiplies by the stage that is filled next
    start_copies(block + kStages - 2);
    if constexpr (Operand::kScaled) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) scales[m] = next_scales[m];
    }
    sums.start_block(ahead[slot], shared_address(stages + block % kStages * Shape::kStageBytes));
    if constexpr (!Operand::kScaled) wait_groups<1>();  // the block before, whose W makes room
    load(1 - slot, block + 1);
    if constexpr (Operand::kScaled) sums.finish_blocks(scales);
    if (--left > 0 && block + 1 < w.blocks) return;
    left = w.section_blocks;
    if constexpr (!Operand::kScaled) sums.finish_blocks(scales);
#pragma unroll
    for (int k = 0; k < Shape::kSums; ++k) {
      add_section(totals[k * kMatmulThreads], sums.acc[k / (4 * kWarpgroupTiles)][k / 4 % kWarpgroupTiles][k % 4]);
    }
    sums.clear_for_warpgroup();
  };
  const int pairs = w.blocks / 2;
  for (int pair = 0; pair < pairs; ++pair) {
    multiply_block(0, 2 * pair);
    multiply_block(1, 2 * pair + 1);
  }
  if (w.blocks % 2 != 0) multiply_block(0, w.blocks - 1);
  wait_groups<0>();  // as the last block did; ptxas wants to see it
  wait_async_copies<0>();

  const Output out = products.output(product);
#pragma unroll
  for (int k = 0; k < Shape::kSums; ++k) {
    const int m = k / (4 * kWarpgroupTiles);
    const int64_t row = (row_tile + 4 * m) * kTileRows + row_of_sum(0, k % 4);
    const int64_t token = token_tile * kTokens + token_of_sum(k / 4 % kWarpgroupTiles, k % 4);
    if (token < x.rows && row < w.rows) finish<Operand>(w, x, out, token, row, totals[k * kMatmulThreads]);
  }
}

template <class Operand, int most>
cudaError_t launch_warpgroup(const Launch& launch, const Products<most>& p) {
  using Shape = WarpgroupShape<Operand>;
  const dim3 blocks(static_cast<unsigned>(ceil_div<int64_t>(p.form.rows, Shape::kBlockRowTiles * kTileRows)),
                    static_cast<unsigned>(ceil_div(p.tile_count, kWarpgroupTiles)));
  return launch_kernel(warpgroup_kernel<Operand, most>, {blocks, dim3(kMatmulThreads), Shape::kSharedBytes}, launch.stream, p);
}

}  // namespace choral_cuda
