// Some tens of rows of x: W streams through registers as in the narrow kernel, but a block has 256 (128) rows of it, a warp 32
// (16), and what all of them multiply by, 32 or 64 rows of x, goes through shared memory once. Where that makes too few blocks to
// fill the device, each section is a block of its own, which writes its sums to scratch for a kernel that adds them.
#pragma once

#include "section_sums.h"

namespace choral_cuda {

// Sums of x over folds, of so many tiles, as a stage has them in shared memory: [tile][fold][8 rows].
template <class Operand>
constexpr int fold_sum_vectors(int token_tiles) {
  return Operand::kScaled ? token_tiles * kStepsOfBlock * kTokens / 4 : 0;
}
template <int token_tiles>
__device__ __forceinline__ void copy_fold_sums(uint4* to, const PackedWeight& w, const PreparedX& x, int64_t first_tile,
                                               int64_t block) {
  const int sums = fold_sums_of_block(w);
  for (int i = threadIdx.x; i < token_tiles * sums / 4; i += kMatmulThreads) {
    const int64_t tile = first_tile + i / (sums / 4);
    const bool valid = tile < x.row_tiles;
    copy_16_async(to + i, x.fold_sums_of(1, valid ? tile : 0, block, sums) + i % (sums / 4) * 4, valid);
  }
}
// Of the lane's two rows.
__device__ __forceinline__ float2 fold_sums_at(const uint4* stage, int fold) {
  return reinterpret_cast<const float2*>(stage)[fold * (kTokens / 2) + threadIdx.x % 4];
}

template <class Operand, int token_tiles>
struct StreamShape {
  static constexpr int kRowTiles = Operand::kScaled ? 1 : 2;  // of a warp
  static constexpr int kBlockRows = kMatmulWarps * kRowTiles * kTileRows;
  static constexpr int kStages = 4;
  static constexpr int kXVectors = token_tiles * Operand::kXVectors * kWarp;  // of a stage
  static constexpr int kSumVectors = fold_sum_vectors<Operand>(token_tiles);
  static constexpr size_t kSharedBytes = size_t{kStages} * (kXVectors + kSumVectors) * sizeof(uint4);
};

// Sums of sections: [section][row of x, of all products][row of W].
template <class Sum>
struct SectionParts {
  Sum* data;
  int64_t x_rows, w_rows;
  __device__ __forceinline__ Sum& at(int64_t section, int64_t token, int64_t n) const {
    return data[(section * x_rows + token) * w_rows + n];
  }
};

template <class Operand, int token_tiles, bool split, int most>
__global__ void __launch_bounds__(kMatmulThreads)
    stream_kernel(const __grid_constant__ Products<most> products, SectionParts<typename Operand::Sum> parts) {
  using Shape = StreamShape<Operand, token_tiles>;
  using Sum = typename Operand::Sum;
  using Sums = SectionSums<Operand, Shape::kRowTiles, token_tiles>;
  constexpr int kRowTiles = Shape::kRowTiles, kStages = Shape::kStages, kAhead = 2;
  uint4* shared = shared_memory<uint4>();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int product = products.find(int64_t{blockIdx.y} * token_tiles);
  const PackedWeight w = products.weight(product);
  const PreparedX x = products.x(product);
  const int64_t row_tile = (int64_t{blockIdx.x} * kMatmulWarps + warp) * kRowTiles;
  const int token_tile = static_cast<int>(blockIdx.y) * token_tiles - products.first_tile(product);
  const int begin = split ? static_cast<int>(blockIdx.z) * w.section_blocks : 0;
  const int end = split && begin + w.section_blocks < w.blocks ? begin + w.section_blocks : w.blocks;
  const int fold_steps = steps_of_fold<Operand>(w);
  const bool has_min = w.min_offset != 0;

  const unsigned char* records[kRowTiles];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) records[m] = record_of(w, row_tile + m);
  const auto start_copies = [&](int block) {
    uint4* stage = shared + (block - begin) % kStages * (Shape::kXVectors + Shape::kSumVectors);
#pragma unroll
    for (int i = threadIdx.x; i < Shape::kXVectors && block < end; i += kMatmulThreads) {
      constexpr int kOfTile = Operand::kXVectors * kWarp;
      const int tile = token_tile + i / kOfTile;
      const bool valid = tile < x.row_tiles;
      copy_16_async(stage + i, x.block<Operand>(valid ? tile : 0, block) + i % kOfTile * 16, valid);
    }
    if (Operand::kScaled && block < end) copy_fold_sums<token_tiles>(stage + Shape::kXVectors, w, x, token_tile, block);
    commit_async_copies();
  };
  WeightBlock<Operand> ahead[kAhead][kRowTiles];
  const FoldPlaces places(w);
  FoldScales<0> scales[Sums::kFoldRows], next_scales[Sums::kFoldRows];
  const auto load = [&](int slot, int block) {
    if (block >= end) return;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) ahead[slot][m].load(records[m], block);
  };
  const auto load_scales = [&](int block) {
    if constexpr (Operand::kScaled) {
      if (block >= end) return;
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) next_scales[m].load(w, places, records[m], block, fold_steps);
    }
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(i, begin + i);
  load_scales(begin);
  wait_for_earlier_kernels();  // x is theirs, W is nobody's
  if (token_tile >= x.row_tiles) return;
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) start_copies(begin + i);

  Sums sums;
  sums.clear();
  Sum total[split ? 1 : kRowTiles][split ? 1 : token_tiles][4] = {};
  int left = w.section_blocks;
  for (int first = begin; first < end; first += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int block = first + i;
      if (block >= end) break;
      wait_async_copies<kStages - 2>();
      __syncthreads();  // this block's copies are everybody's, and nobody reads the stage that is filled next
      start_copies(block + kStages - 1);
      if constexpr (Operand::kScaled) {
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) scales[m] = next_scales[m];
        load_scales(block + 1);
      }
      const uint4* stage = shared + (block - begin) % kStages * (Shape::kXVectors + Shape::kSumVectors);
      sums.multiply_block(
          ahead[i], scales, fold_steps, has_min,
          [&](int n, int vector) { return stage[(n * Operand::kXVectors + vector) * kWarp + lane]; },
          [&](int n, int fold) { return fold_sums_at(stage + Shape::kXVectors, n * places.groups_of_block + fold); });
      load(i, block + kAhead);
      if constexpr (!split) {
        if (--left > 0 && block + 1 < end) continue;
        left = w.section_blocks;
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
          for (int n = 0; n < token_tiles; ++n) {
#pragma unroll
            for (int k = 0; k < 4; ++k) add_section(total[m][n][k], sums.acc[m][n][k]);
          }
        }
        sums.clear();
      }
    }
  }
  wait_async_copies<0>();

  const Output out = products.output(product);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < token_tiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t row = row_tile * kTileRows + row_of_sum(m, i);
        const int token = token_tile * kTokens + token_of_sum(n, i);
        if (token >= x.rows || row >= w.rows) continue;
        if constexpr (split) {
          parts.at(blockIdx.z, products.first_tile(product) * kTokens + token, row) = sums.acc[m][n][i];
        } else {
          finish<Operand>(w, x, out, token, row, total[m][n][i]);
        }
      }
    }
  }
}

template <class Operand, int most>
__global__ void __launch_bounds__(kMatmulThreads)
    add_sections_kernel(const __grid_constant__ Products<most> products, SectionParts<typename Operand::Sum> parts) {
  wait_for_earlier_kernels();
  const int product = products.find(blockIdx.y / kTokens);
  const PackedWeight w = products.weight(product);
  const PreparedX x = products.x(product);
  const int64_t token = int64_t{blockIdx.y} - int64_t{products.first_tile(product)} * kTokens,
                n = int64_t{blockIdx.x} * kMatmulThreads + threadIdx.x;
  if (token >= x.rows || n >= w.rows) return;
  typename Operand::Sum total = 0;
  for (int s = 0; s < ceil_div(w.blocks, w.section_blocks); ++s) add_section(total, parts.at(s, blockIdx.y, n));
  finish<Operand>(w, x, products.output(product), token, n, total);
}

// Whether so many blocks leave the device idle, and sections may be blocks of their own.
template <int most>
bool wants_split(const Launch& launch, const Products<most>& p, const dim3& blocks) {
  return int64_t{blocks.x} * blocks.y * 4 < int64_t{launch.sm_count} * 3 && may_split(p);
}

// A kernel whose blocks write sums of sections to scratch, and the one that adds them.
template <class Operand, int most>
cudaError_t launch_split(const Launch& launch, const Products<most>& p,
                         void (*kernel)(Products<most>, SectionParts<typename Operand::Sum>), const dim3& blocks,
                         size_t shared_bytes) {
  unsigned char* behind_x = p.tiles + scratch_of_x(p);
  const SectionParts<typename Operand::Sum> parts{reinterpret_cast<typename Operand::Sum*>(behind_x),
                                                  int64_t{p.tile_count} * kTokens, p.form.rows};
  const dim3 by_section(blocks.x, blocks.y, static_cast<unsigned>(ceil_div(p.form.blocks, p.form.section_blocks)));
  const cudaError_t error = launch_kernel(kernel, {by_section, dim3(kMatmulThreads), shared_bytes}, launch, p, parts);
  if (error != cudaSuccess) return error;
  const dim3 all(static_cast<unsigned>(ceil_div<int64_t>(p.form.rows, kMatmulThreads)),
                 static_cast<unsigned>(p.tile_count * kTokens));
  return launch_kernel(add_sections_kernel<Operand, most>, {all, dim3(kMatmulThreads)}, launch, p, parts);
}

template <class Operand, int token_tiles, int most>
cudaError_t launch_stream(const Launch& launch, const Products<most>& p) {
  using Shape = StreamShape<Operand, token_tiles>;
  const dim3 blocks(static_cast<unsigned>(ceil_div<int64_t>(p.form.rows, Shape::kBlockRows)),
                    static_cast<unsigned>(ceil_div(p.tile_count, token_tiles)));
  if (wants_split(launch, p, blocks)) {
    return launch_split<Operand>(launch, p, stream_kernel<Operand, token_tiles, true, most>, blocks, Shape::kSharedBytes);
  }
  return launch_kernel(stream_kernel<Operand, token_tiles, false, most>, {blocks, dim3(kMatmulThreads), Shape::kSharedBytes},
                       launch, p, SectionParts<typename Operand::Sum>{});
}

}  // namespace choral_cuda
