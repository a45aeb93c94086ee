// Up to sixteen rows of x: a block has one or two row tiles of W, each of its warps a section, and W streams through registers.
// The sections meet in shared memory.
#pragma once

#include "section_sums.h"

namespace choral_cuda {

template <class Operand, int row_tiles, int token_tiles, int most>
__global__ void __launch_bounds__(kMatmulThreads) narrow_kernel(const __grid_constant__ Products<most> products) {
  using Sums = SectionSums<Operand, row_tiles, token_tiles>;
  using Sum = typename Operand::Sum;
  constexpr int kRowsOfBlock = row_tiles * kTileRows, kTokensOfBlock = token_tiles * kTokens;
  constexpr int kAhead = Operand::kVectors == 4 ? 2 : 4;
  Sum* parts = shared_memory<Sum>();  // [section][token][row]
  const int section = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int product = products.find(int64_t{blockIdx.y} * token_tiles);
  const PackedWeight w = products.weight(product);
  const PreparedX x = products.x(product);
  const int64_t row_tile = int64_t{blockIdx.x} * row_tiles;
  const int token_tile = static_cast<int>(blockIdx.y) * token_tiles - products.first_tile(product);
  const int begin = section * w.section_blocks;
  const int end = begin + w.section_blocks < w.blocks ? begin + w.section_blocks : w.blocks;
  const int fold_steps = steps_of_fold<Operand>(w);
  const bool has_min = w.min_offset != 0;

  const unsigned char* records[row_tiles];
#pragma unroll
  for (int m = 0; m < row_tiles; ++m) records[m] = record_of(w, row_tile + m);
  WeightBlock<Operand> ahead[kAhead][row_tiles];
  FoldScales scales[Sums::kFoldRows], next_scales[Sums::kFoldRows];
  const auto load_scales = [&](int block) {
    if constexpr (Operand::kScaled) {
      if (block >= end) return;
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) next_scales[m].load(w, records[m], block, fold_steps);
    }
  };
  const auto load = [&](int slot, int block) {
    if (block >= end) return;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) ahead[slot][m].load(records[m], block);
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(i, begin + i);
  load_scales(begin);
  wait_for_earlier_kernels();  // x is theirs, W is nobody's

  Sums sums;
  sums.clear();
  for (int first = begin; first < end; first += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int block = first + i;
      if (block >= end) break;
      if constexpr (Operand::kScaled) {
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) scales[m] = next_scales[m];
        load_scales(block + 1);
      }
      // Of rows that are not there the zeros need not be read.
      sums.multiply_block(ahead[i], scales, fold_steps, has_min, [&](int n, int vector) {
        const int tile = token_tile + n;
        if (tile * kTokens + lane / 4 >= x.rows) return make_uint4(0, 0, 0, 0);
        return *reinterpret_cast<const uint4*>(x.block<Operand>(tile, block) + (vector * kWarp + lane) * 16);
      });
      load(i, block + kAhead);
    }
  }

#pragma unroll
  for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
    for (int n = 0; n < token_tiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        parts[(section * kTokensOfBlock + token_of_sum(n, i)) * kRowsOfBlock + row_of_sum(m, i)] = sums.acc[m][n][i];
      }
    }
  }
  __syncthreads();
  const Output out = products.output(product);
  const int sections = ceil_div(w.blocks, w.section_blocks);
  for (int i = threadIdx.x; i < kTokensOfBlock * kRowsOfBlock; i += kMatmulThreads) {
    const int token = token_tile * kTokens + i / kRowsOfBlock, n = row_tile * kTileRows + i % kRowsOfBlock;
    if (token >= x.rows || n >= w.rows) continue;
    Sum total = 0;
    for (int s = 0; s < sections; ++s) add_section(total, parts[s * kTokensOfBlock * kRowsOfBlock + i]);
    finish<Operand>(w, x, out, token, n, total);
  }
}

template <class Operand, int row_tiles, int token_tiles, int most>
cudaError_t launch_narrow_rows(const Launch& launch, const Products<most>& p) {
  const GridShape shape{dim3(static_cast<unsigned>(ceil_div<int64_t>(p.form.rows, row_tiles * kTileRows)),
                             static_cast<unsigned>(ceil_div(p.tile_count, token_tiles))),
                        dim3(kMatmulThreads),
                        size_t{kSections} * row_tiles * kTileRows * token_tiles * kTokens * sizeof(typename Operand::Sum)};
  return launch_kernel(narrow_kernel<Operand, row_tiles, token_tiles, most>, shape, launch, p);
}

// Two row tiles share what they read of x, where one of them would fill the device several times; scaled weights lack the
// registers.
template <class Operand, int token_tiles, int most>
cudaError_t launch_narrow(const Launch& launch, const Products<most>& p) {
  if constexpr (Operand::kScaled) {
    return launch_narrow_rows<Operand, token_tiles, token_tiles>(launch, p);
  } else {
    constexpr int kBlocksOfSm = 4;
    const int64_t blocks = ceil_div<int64_t>(p.form.rows, kTileRows) * ceil_div(p.tile_count, token_tiles);
    const bool many = blocks >= 2 * kBlocksOfSm * int64_t{launch.sm_count};
    return many ? launch_narrow_rows<Operand, 2, token_tiles>(launch, p) : launch_narrow_rows<Operand, 1, token_tiles>(launch, p);
  }
}

}  // namespace choral_cuda
