// Rows of x on wgmma: a block has up to 32, 64 or 128 of them and 128 of W, or 256 where there are most of x. W streams through
// registers, each warp's own rows; x goes through shared memory, where products read it themselves. A block of 64 columns is a
// group of products, which runs while the registers of the one before are filled with W again. Registers are full of a section's
// sums, so those of the sections before lie in shared memory, each thread's its own; or each section is a block of its own, as in
// the streaming kernel. Blocks that follow each other have the same rows of W, which all but the first find in L2.
#pragma once

#include "matmul_stream_inl.h"

namespace choral_cuda {

inline constexpr int kFetchAhead = 8;  // blocks of W that L2 is asked for before registers are

template <class Operand, int token_tiles>
struct WarpgroupShape {
  static constexpr int kRowTiles = Operand::kScaled || token_tiles < kWarpgroupTiles ? 1 : 2;  // of a warp, four apart
  static constexpr int kBlockRowTiles = kMatmulWarps * kRowTiles;
  static constexpr int kSlots = !Operand::kScaled && kRowTiles == 1 ? 4 : 2;  // blocks of W in registers, which run or come
  static constexpr int kStages = token_tiles == kWarpgroupTiles && Operand::kXVectors == 4 ? 3 : 4;
  static constexpr int kXVectors = token_tiles * Operand::kXVectors * kWarp;  // of a stage
  static constexpr int kSums = kRowTiles * token_tiles * 4;                   // of a thread
  static constexpr size_t kStageBytes = kXVectors * sizeof(uint4);
  static constexpr size_t kSharedBytes = kStages * kStageBytes;
  static constexpr size_t kTotalBytes = size_t{kSums} * kMatmulThreads * sizeof(float);
  static_assert(kSharedBytes + kTotalBytes <= 227 << 10);
};

template <class Operand, int token_tiles, bool split, int most>
__global__ void __launch_bounds__(kMatmulThreads, token_tiles < kWarpgroupTiles ? 2 : 1)
    warpgroup_kernel(const __grid_constant__ Products<most> products, SectionParts<typename Operand::Sum> parts) {
  using Shape = WarpgroupShape<Operand, token_tiles>;
  using Sum = typename Operand::Sum;
  using Sums = SectionSums<Operand, Shape::kRowTiles, token_tiles>;
  constexpr int kRowTiles = Shape::kRowTiles, kStages = Shape::kStages, kSlots = Shape::kSlots;
  unsigned char* stages = shared_memory<unsigned char>();
  Sum* totals = reinterpret_cast<Sum*>(stages + Shape::kSharedBytes) + threadIdx.x;  // [sum][thread]
  const int product = products.find(int64_t{blockIdx.x} * token_tiles);
  const PackedWeight w = products.weight(product);
  const PreparedX x = products.x(product);
  const int64_t token_tile = int64_t{blockIdx.x} * token_tiles - products.first_tile(product);
  // Warp w of a warpgroup has rows 16w on of each of its 64.
  const int warp = threadIdx.x / kWarp;
  const int64_t row_tile = int64_t{blockIdx.y} * Shape::kBlockRowTiles + warp / 4 * (4 * kRowTiles) + warp % 4;
  const int begin = split ? static_cast<int>(blockIdx.z) * w.section_blocks : 0;
  const int end = split && begin + w.section_blocks < w.blocks ? begin + w.section_blocks : w.blocks;

  const unsigned char* records[kRowTiles];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) records[m] = record_of(w, row_tile + 4 * m);
  const auto start_copies = [&](int block) {
    unsigned char* stage = stages + (block - begin) % kStages * Shape::kStageBytes;
#pragma unroll
    for (int i = threadIdx.x; i < Shape::kXVectors && block < end; i += kMatmulThreads) {
      constexpr int kOfTile = Operand::kXVectors * kWarp;
      const int64_t tile = token_tile + i / kOfTile;
      const bool valid = tile < x.row_tiles;
      copy_16_async(stage + i * 16, x.block<Operand>(valid ? tile : 0, block) + i % kOfTile * 16, valid);
    }
    commit_async_copies();
  };
  WeightBlock<Operand> ahead[kSlots][kRowTiles];
  const FoldPlaces places(w);
  FoldScales<kStepsOfBlock> scales[Sums::kFoldRows], next_scales[Sums::kFoldRows];
  const auto load = [&](int slot, int block) {
    if (block >= end) return;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      ahead[slot][m].load(records[m], block);
      if constexpr (Operand::kScaled) next_scales[m].load(w, places, records[m], block, kStepsOfBlock);
    }
    if constexpr (token_tiles == kWarpgroupTiles && !split) {  // where rows of W are read again and again, L2 is to have them
#pragma unroll
      for (int m = 0; m < kRowTiles && block + kFetchAhead < end; ++m) ahead[slot][m].fetch(records[m], block + kFetchAhead);
    }
  };
#pragma unroll
  for (int slot = 0; slot < (Operand::kScaled ? 1 : kSlots); ++slot) load(slot, begin + slot);
  wait_for_earlier_kernels();  // x is theirs, W is nobody's
#pragma unroll
  for (int i = 0; i < kStages - 2; ++i) start_copies(begin + i);

  const auto total = [&](int k) -> Sum& { return totals[k * kMatmulThreads]; };
  Sums sums;
  sums.clear();
  sums.hold_products();
  if constexpr (!split) {
#pragma unroll
    for (int k = 0; k < Shape::kSums; ++k) total(k) = 0;
  }
  // Of groups that are done.
  const auto end_section = [&] {
    if constexpr (!split) {
#pragma unroll
      for (int k = 0; k < Shape::kSums; ++k) add_section(total(k), sums.acc[k / (4 * token_tiles)][k / 4 % token_tiles][k % 4]);
      sums.clear();
      sums.hold_products();
    }
  };
  // x of this block is there for all, and nobody multiplies by the stage that is filled next.
  const auto enter_block = [&](int block) {
    wait_async_copies<kStages - 3>();
    show_to_products();
    __syncthreads();
    start_copies(block + kStages - 2);
    return shared_address(stages + (block - begin) % kStages * Shape::kStageBytes);
  };

  int left = w.section_blocks;
  for (int first = begin; first < end; first += kSlots) {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const int block = first + slot;
      if (block >= end) break;
      const uint32_t address = enter_block(block);
      if constexpr (Operand::kScaled) {  // a block is a fold, whose sums are waited for
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) scales[m] = next_scales[m];
        sums.start_block(ahead[slot], address);
        load(1 - slot, block + 1);
        wait_groups<0>();
        sums.hold_products();
        sums.fold_in(scales, kStepsOfBlock - 1, false);
        sums.hold_products();
      } else {
        sums.start_block(ahead[slot], address);
        wait_groups<1>();  // the block before, whose W makes room
        if (block > begin) load((slot + kSlots - 1) % kSlots, block - 1 + kSlots);
      }
      if (--left > 0 && block + 1 < end) continue;
      left = w.section_blocks;
      if constexpr (!Operand::kScaled) {
        wait_groups<0>();
        sums.hold_products();
      }
      end_section();
    }
  }
  wait_groups<0>();  // as the last block did; ptxas wants to see it
  wait_async_copies<0>();

  const Output out = products.output(product);
#pragma unroll
  for (int k = 0; k < Shape::kSums; ++k) {
    const int m = k / (4 * token_tiles), n = k / 4 % token_tiles;
    const int64_t row = (row_tile + 4 * m) * kTileRows + row_of_sum(0, k % 4);
    const int64_t token = token_tile * kTokens + token_of_sum(n, k % 4);
    if (token >= x.rows || row >= w.rows) continue;
    if constexpr (split) {
      parts.at(blockIdx.z, int64_t{products.first_tile(product)} * kTokens + token, row) = sums.acc[m][n][k % 4];
    } else {
      finish<Operand>(w, x, out, token, row, total(k));
    }
  }
}

template <class Operand, int token_tiles, int most>
cudaError_t launch_warpgroup(const Launch& launch, const Products<most>& p) {
  using Shape = WarpgroupShape<Operand, token_tiles>;
  const dim3 blocks(static_cast<unsigned>(ceil_div(p.tile_count, token_tiles)),
                    static_cast<unsigned>(ceil_div<int64_t>(p.form.rows, Shape::kBlockRowTiles * kTileRows)));
  if constexpr (!Operand::kScaled && most == 1) {
    if (wants_split(launch, p, blocks)) {
      return launch_split<Operand>(launch, p, warpgroup_kernel<Operand, token_tiles, true, most>, blocks, Shape::kSharedBytes);
    }
  }
  return launch_kernel(warpgroup_kernel<Operand, token_tiles, false, most>,
                       {blocks, dim3(kMatmulThreads), Shape::kSharedBytes + Shape::kTotalBytes}, launch, p,
                       SectionParts<typename Operand::Sum>{});
}

template <class Operand, int most>
cudaError_t launch_warpgroups(const Launch& launch, const Products<most>& p) {
  if constexpr (!Operand::kScaled && most == 1) {
    if (p.block_tiles == 4) return launch_warpgroup<Operand, 4>(launch, p);
    if (p.block_tiles == 8) return launch_warpgroup<Operand, 8>(launch, p);
  }
  return launch_warpgroup<Operand, kWarpgroupTiles>(launch, p);
}

}  // namespace choral_cuda
