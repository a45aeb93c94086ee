// Up to sixteen rows of x: a block has one or two row tiles of W, each of its warps a section, and W streams through registers.
// The sections meet in shared memory.
#pragma once

#include "section_sums.h"

namespace choral_cuda {

// fold: steps of a weight's folds, 0 where nothing is scaled.
template <class Operand, int fold, int row_tiles, int token_tiles, int most>
__global__ void __launch_bounds__(kMatmulThreads) narrow_kernel(const __grid_constant__ Products<most> products) {
  using Sums = SectionSums<Operand, row_tiles, token_tiles>;
  using Sum = typename Operand::Sum;
  constexpr int kRowsOfBlock = row_tiles * kTileRows, kTokensOfBlock = token_tiles * kTokens;
  constexpr int kAhead = Operand::kVectors == 4 || fold == 1 ? 2 : 4;  // as registers allow
  Sum* parts = shared_memory<Sum>();                                   // [section][token][row]
  const int section = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int product = products.find(int64_t{blockIdx.y} * token_tiles);
  const PackedWeight w = products.weight(product);
  const PreparedX x = products.x(product);
  const int64_t row_tile = int64_t{blockIdx.x} * row_tiles;
  const int token_tile = static_cast<int>(blockIdx.y) * token_tiles - products.first_tile(product);
  const int begin = section * w.section_blocks;
  const int end = begin + w.section_blocks < w.blocks ? begin + w.section_blocks : w.blocks;
  const bool has_min = w.min_offset != 0;

  const unsigned char* records[row_tiles];
#pragma unroll
  for (int m = 0; m < row_tiles; ++m) records[m] = record_of(w, row_tile + m);
  // What is under way: W and its scales several blocks ahead; x, which lies in L2, one, where W's own loads are few.
  const FoldPlaces places(w);
  WeightBlock<Operand> ahead[kAhead][row_tiles];
  FoldScales<fold> scales[kAhead][Sums::kFoldRows];
  const auto load = [&](int slot, int block) {
    if (block >= end) return;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
      ahead[slot][m].load(records[m], block);
      if constexpr (Operand::kScaled) scales[slot][m].load(w, places, records[m], block, fold);
    }
  };
  constexpr int kXAhead = Operand::kScaled ? 1 : 0;
  uint4 next_x[token_tiles][Operand::kXVectors];
  constexpr int kFolds = FoldScales<fold>::kFolds;
  float2 next_sums[Sums::kFoldTokens][kFolds];
  const auto load_x = [&](int block) {
#pragma unroll
    for (int n = 0; n < token_tiles; ++n) {
      const int tile = token_tile + n;  // of rows that are not there the zeros need not be read
      const bool is_there = block < end && tile * kTokens + lane / 4 < x.rows;
#pragma unroll
      for (int i = 0; i < Operand::kXVectors; ++i) {
        next_x[n][i] = make_uint4(0, 0, 0, 0);
        if (is_there) next_x[n][i] = *reinterpret_cast<const uint4*>(x.block<Operand>(tile, block) + (i * kWarp + lane) * 16);
      }
      if constexpr (Operand::kScaled) {
#pragma unroll
        for (int i = 0; i < kFolds && has_min; ++i) {
          next_sums[n][i] = make_float2(0.0f, 0.0f);
          if (block >= end || tile >= x.row_tiles) continue;
          const float* sums = x.fold_sums_of(1, tile, block, kFolds * kTokens) + i * kTokens;
          next_sums[n][i] = *reinterpret_cast<const float2*>(sums + lane % 4 * 2);
        }
      }
    }
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(i, begin + i);
  wait_for_earlier_kernels();  // x is theirs, W is nobody's
  if (kXAhead == 1) load_x(begin);

  Sums sums;
  sums.clear();
  for (int first = begin; first < end; first += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int block = first + i;
      if (block >= end) break;
      uint4 now[token_tiles][Operand::kXVectors];
      float2 sums_now[Sums::kFoldTokens][kFolds];
      const auto take_x = [&] {
#pragma unroll
        for (int n = 0; n < token_tiles; ++n) {
#pragma unroll
          for (int vector = 0; vector < Operand::kXVectors; ++vector) now[n][vector] = next_x[n][vector];
        }
#pragma unroll
        for (int n = 0; n < Sums::kFoldTokens; ++n) {
#pragma unroll
          for (int i = 0; i < kFolds; ++i) sums_now[n][i] = next_sums[n][i];
        }
      };
      if (kXAhead == 1) take_x();
      load_x(block + kXAhead);
      if (kXAhead == 0) take_x();
      sums.multiply_block(
          ahead[i], scales[i], fold, has_min, [&](int n, int vector) { return now[n][vector]; },
          [&](int n, int at) { return sums_now[n][at]; });
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

template <class Operand, int fold, int row_tiles, int token_tiles, int most>
cudaError_t launch_narrow_rows(const Launch& launch, const Products<most>& p) {
  const GridShape shape{dim3(static_cast<unsigned>(ceil_div<int64_t>(p.form.rows, row_tiles * kTileRows)),
                             static_cast<unsigned>(ceil_div(p.tile_count, token_tiles))),
                        dim3(kMatmulThreads),
                        size_t{kSections} * row_tiles * kTileRows * token_tiles * kTokens * sizeof(typename Operand::Sum)};
  return launch_kernel(narrow_kernel<Operand, fold, row_tiles, token_tiles, most>, shape, launch, p);
}

// Two row tiles share what they read of x, where one of them would fill the device several times; scaled weights lack the
// registers.
template <class Operand, int token_tiles, int most>
cudaError_t launch_narrow(const Launch& launch, const Products<most>& p) {
  if constexpr (Operand::kScaled) {
    switch (p.form.group) {
      case 16: return launch_narrow_rows<Operand, 1, token_tiles, token_tiles>(launch, p);
      case 32: return launch_narrow_rows<Operand, 2, token_tiles, token_tiles>(launch, p);
      default: return launch_narrow_rows<Operand, kStepsOfBlock, token_tiles, token_tiles>(launch, p);
    }
  } else {
    constexpr int kBlocksOfSm = 4;
    const int64_t blocks = ceil_div<int64_t>(p.form.rows, kTileRows) * ceil_div(p.tile_count, token_tiles);
    const bool many = blocks >= 2 * kBlocksOfSm * int64_t{launch.sm_count};
    return many ? launch_narrow_rows<Operand, 0, 2, token_tiles>(launch, p)
                : launch_narrow_rows<Operand, 0, 1, token_tiles>(launch, p);
  }
}

}  // namespace choral_cuda
