// Rows of x on wgmma: a block has up to 32, 64, 128 or 256 of them, and 128 of W; with 128 of x it has 256 of a W without scales.
// W streams through registers, each warp's own rows; x comes to shared memory in large pieces, from where products read it
// themselves. A part of x is a group of products, which runs while the registers of the one before are filled with W again.
// Nobody waits for all: a part has a barrier that says it is there, and one that says all warps are done with it, so that one
// warpgroup multiplies while the other adds up. Registers are full of a section's sums, so those of the sections before lie in
// shared memory, each thread's its own (sums of integers have no sections); or each section is a block of its own, as in the
// streaming kernel. Blocks that follow each other have the same rows of W, which all but the first find in L2.
#pragma once

#include <algorithm>
#include <type_traits>

#include "barriers.h"
#include "matmul_stream_inl.h"

namespace choral_cuda {

inline constexpr int kFetchAhead = 8;  // blocks of W that L2 is asked for before registers are

// fold: steps of a weight's folds, 0 where nothing is scaled.
template <class Operand, int fold, int token_tiles, bool split>
struct WarpgroupShape {
  static constexpr int kRowTiles = warpgroup_row_tiles(Operand::kScaled, token_tiles);  // of a warp, four apart
  static constexpr int kBlockRowTiles = kMatmulWarps * kRowTiles;
  static constexpr bool kTwice = token_tiles <= 8;  // on a multiprocessor
  // Blocks of W in registers, which run or come.
  static constexpr int kSlots = Operand::kScaled || kRowTiles == 2 ? 2 : token_tiles == 32 ? 3 : 4;
  static constexpr int kParts = parts_of_block(token_tiles, Operand::kXVectors == 4 ? 2 : 1);
  static constexpr uint32_t kTileBytes = Operand::kXVectors * kWarp * sizeof(uint4) / kParts;
  static constexpr uint32_t kXBytes = token_tiles * kTileBytes;                                                   // of a part
  static constexpr uint32_t kFoldSums = Operand::kScaled ? kStepsOfBlock / (fold == 0 ? 1 : fold) * kTokens : 0;  // of a tile
  static constexpr uint32_t kStageBytes = kXBytes + token_tiles * kFoldSums * sizeof(float);
  static constexpr int kSums = kRowTiles * token_tiles * 4;  // of a thread
  static constexpr bool kHasTotals = !split && std::is_same_v<typename Operand::Sum, float>;
  static constexpr size_t kTotalBytes = kHasTotals ? size_t{kSums} * kMatmulThreads * sizeof(float) : 0;
  static constexpr size_t kMostSharedBytes = (kTwice ? 113 : 227) << 10;
  static constexpr int kStages =
      std::min<int>(kTwice ? 4 : 6, (kMostSharedBytes - kTotalBytes) / (kStageBytes + 2 * kBarrierBytes));
  static constexpr int kBehind = kStages > 3 ? 2 : 1;  // parts that a warp may be behind before others wait for it
  static constexpr size_t kSharedBytes = kStages * (kStageBytes + 2 * kBarrierBytes) + kTotalBytes;
  static_assert(kStages > 2);
  static_assert(!Operand::kScaled || kParts == 1);  // folds end in it
};

template <class Operand, int fold, int token_tiles, bool split, int most>
__global__ void __launch_bounds__(kMatmulThreads, WarpgroupShape<Operand, fold, token_tiles, split>::kTwice ? 2 : 1)
    warpgroup_kernel(const __grid_constant__ Products<most> products, SectionParts<typename Operand::Sum> parts) {
  using Shape = WarpgroupShape<Operand, fold, token_tiles, split>;
  using Sum = typename Operand::Sum;
  using Sums = SectionSums<Operand, Shape::kRowTiles, token_tiles>;
  constexpr int kRowTiles = Shape::kRowTiles, kStages = Shape::kStages, kSlots = Shape::kSlots, kParts = Shape::kParts;
  auto* shared = shared_memory<unsigned char>();
  Sum* totals = reinterpret_cast<Sum*>(shared + kStages * Shape::kStageBytes) + threadIdx.x;  // [sum][thread]
  const uint32_t stages = shared_address(shared);
  const auto stage_of = [&](int part) { return stages + part % kStages * Shape::kStageBytes; };
  const uint32_t barriers = stages + kStages * Shape::kStageBytes + static_cast<uint32_t>(Shape::kTotalBytes);
  const auto there = [&](int part) { return barriers + part % kStages * kBarrierBytes; };
  const auto done = [&](int part) { return barriers + (kStages + part % kStages) * kBarrierBytes; };
  const auto parity = [&](int part) { return static_cast<uint32_t>(part / kStages & 1); };

  const int product = products.find(int64_t{blockIdx.x} * token_tiles);
  const PackedWeight w = products.weight(product);
  const PreparedX x = products.x(product);
  const int64_t token_tile = int64_t{blockIdx.x} * token_tiles - products.first_tile(product);
  // Warp w of a warpgroup has rows 16w on of each of its 64.
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t row_tile = int64_t{blockIdx.y} * Shape::kBlockRowTiles + warp / 4 * (4 * kRowTiles) + warp % 4;
  const int begin = split ? static_cast<int>(blockIdx.z) * w.section_blocks : 0;
  const int end = split && begin + w.section_blocks < w.blocks ? begin + w.section_blocks : w.blocks;
  const int all_parts = (end - begin) * kParts;  // of this block's columns, counted from 0

  const unsigned char* records[kRowTiles];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) records[m] = record_of(w, row_tile + 4 * m);
  WeightBlock<Operand> ahead[kSlots][kRowTiles];
  const FoldPlaces places(w);
  const bool has_min = w.min_offset != 0;
  FoldScales<fold> scales[Sums::kFoldRows], next_scales[Sums::kFoldRows];
  const auto load = [&](int slot, int block) {
    if (block >= end) return;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      ahead[slot][m].load(records[m], block);
      if constexpr (Operand::kScaled) next_scales[m].load(w, places, records[m], block, fold);
    }
    if constexpr (!Shape::kTwice && !split) {  // where rows of W are read again and again, L2 is to have them
#pragma unroll
      for (int m = 0; m < kRowTiles && block + kFetchAhead < end; ++m) ahead[slot][m].fetch(records[m], block + kFetchAhead);
    }
  };
  if (threadIdx.x == 0) {
    for (int part = 0; part < kStages; ++part) start_barrier(there(part), 1), start_barrier(done(part), kMatmulWarps);
    show_barriers();
  }
#pragma unroll
  for (int slot = 0; slot < (Operand::kScaled ? 1 : kSlots); ++slot) load(slot, begin + slot);
  wait_for_earlier_kernels();  // x is theirs, W is nobody's
  __syncthreads();

  // One thread's: a part on its way, once all are done with what has its place.
  const int64_t tiles_left = x.row_tiles - token_tile;
  const uint32_t tiles = tiles_left < token_tiles ? static_cast<uint32_t>(tiles_left) : token_tiles;
  const uint32_t x_bytes = tiles * Shape::kTileBytes, sum_bytes = has_min ? tiles * Shape::kFoldSums * sizeof(float) : 0;
  const auto fetch_part = [&](int part) {
    if (part >= all_parts) return;
    if (part >= kStages) wait_phase(done(part), parity(part) ^ 1);
    const int block = begin + part / kParts;
    arrive_and_expect(there(part), x_bytes + sum_bytes);
    copy_bulk(stage_of(part), x.part(token_tiles, kParts, Shape::kTileBytes, token_tile, block, part % kParts), x_bytes,
              there(part));
    if (Operand::kScaled && has_min) {
      copy_bulk(stage_of(part) + Shape::kXBytes, x.fold_sums_of(token_tiles, token_tile, block, Shape::kFoldSums), sum_bytes,
                there(part));
    }
  };
  if (threadIdx.x == 0) {
    for (int part = 0; part < kStages - Shape::kBehind; ++part) fetch_part(part);
  }
  __syncwarp();

  const auto total = [&](int k) -> Sum& { return totals[k * kMatmulThreads]; };
  Sums sums;
  const auto sum = [&](int k) -> Sum& { return sums.acc[k / (4 * token_tiles)][k / 4 % token_tiles][k % 4]; };
  sums.clear();
  sums.hold_products();
  if constexpr (Shape::kHasTotals) {
#pragma unroll
    for (int k = 0; k < Shape::kSums; ++k) total(k) = 0;
  }
  // Of groups that are done.
  const auto end_section = [&] {
    if constexpr (Shape::kHasTotals) {
#pragma unroll
      for (int k = 0; k < Shape::kSums; ++k) add_section(total(k), sum(k));
      sums.clear();
      sums.hold_products();
    }
  };
  const auto leave_part = [&](int part) {
    if (lane == 0) arrive(done(part));
  };

  int left = w.section_blocks;
  for (int first = begin; first < end; first += kSlots) {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const int block = first + slot;
      if (block >= end) break;
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const int part = (block - begin) * kParts + i;
        wait_phase(there(part), parity(part));
        if constexpr (Operand::kScaled) {  // each fold's sums are waited for, while the other warpgroup multiplies
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) scales[m] = next_scales[m];
          const auto* x_sums = reinterpret_cast<const uint4*>(shared + part % kStages * Shape::kStageBytes + Shape::kXBytes);
#pragma unroll
          for (int step = 0; step < kStepsOfBlock; step += fold) {
            sums.template start_steps<fold, kStepsOfBlock>(ahead[slot], stage_of(part), step);
            if (step == 0) load(1 - slot, block + 1);
            wait_groups<0>();
            sums.hold_products();
            sums.fold_in(scales, step + fold - 1, fold, has_min,
                         [&](int n, int at) { return fold_sums_at(x_sums, n * (kStepsOfBlock / fold) + at); });
            sums.hold_products();
          }
          leave_part(part);
        } else {
          constexpr int kSteps = Operand::kSteps / kParts;
          sums.template start_steps<kSteps, kSteps>(ahead[slot], stage_of(part), i * kSteps);
          wait_groups<1>();  // the part before, whose place is free, and whose W makes room
          if (part > 0) leave_part(part - 1);
          if (i == 0 && block > begin) load((slot + kSlots - 1) % kSlots, block - 1 + kSlots);
        }
        if (threadIdx.x == 0) fetch_part(part + kStages - Shape::kBehind);
        __syncwarp();
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

  const Output out = products.output(product);
#pragma unroll
  for (int k = 0; k < Shape::kSums; ++k) {
    const int m = k / (4 * token_tiles), n = k / 4 % token_tiles;
    const int64_t row = (row_tile + 4 * m) * kTileRows + row_of_sum(0, k % 4);
    const int64_t token = token_tile * kTokens + token_of_sum(n, k % 4);
    if (token >= x.rows || row >= w.rows) continue;
    if constexpr (split) {
      parts.at(blockIdx.z, int64_t{products.first_tile(product)} * kTokens + token, row) = sum(k);
    } else {
      finish<Operand>(w, x, out, token, row, Shape::kHasTotals ? total(k) : sum(k));
    }
  }
}

template <class Operand, int fold, int token_tiles, int most>
cudaError_t launch_warpgroup(const Launch& launch, const Products<most>& p) {
  using Shape = WarpgroupShape<Operand, fold, token_tiles, false>;
  const dim3 blocks(static_cast<unsigned>(ceil_div(p.tile_count, token_tiles)),
                    static_cast<unsigned>(ceil_div<int64_t>(p.form.rows, Shape::kBlockRowTiles * kTileRows)));
  if constexpr (!Operand::kScaled && most == 1) {
    if (wants_split(launch, p, blocks)) {
      return launch_split<Operand>(launch, p, warpgroup_kernel<Operand, fold, token_tiles, true, most>, blocks,
                                   WarpgroupShape<Operand, fold, token_tiles, true>::kSharedBytes);
    }
  }
  return launch_kernel(warpgroup_kernel<Operand, fold, token_tiles, false, most>,
                       {blocks, dim3(kMatmulThreads), Shape::kSharedBytes}, launch, p, SectionParts<typename Operand::Sum>{});
}

template <class Operand, int most>
cudaError_t launch_warpgroups(const Launch& launch, const Products<most>& p) {
  if constexpr (Operand::kScaled) {
    switch (p.form.group) {
      case 16: return launch_warpgroup<Operand, 1, 16>(launch, p);
      case 32: return launch_warpgroup<Operand, 2, 16>(launch, p);
      default: return launch_warpgroup<Operand, kStepsOfBlock, 16>(launch, p);
    }
  } else {
    if constexpr (most == 1) {
      if (p.block_tiles == 4) return launch_warpgroup<Operand, 0, 4>(launch, p);
      if (p.block_tiles == 8) return launch_warpgroup<Operand, 0, 8>(launch, p);
      if (p.block_tiles == kWarpgroupTiles) return launch_warpgroup<Operand, 0, kWarpgroupTiles>(launch, p);
    }
    return launch_warpgroup<Operand, 0, 16>(launch, p);
  }
}

}  // namespace choral_cuda
