// y = x·Wᵀ on mma.sync, W as A and eight rows of x as B, for one operand of operands.h. Included by the file that launches it.
//
// The order of a sum, whatever the kernel, the tile and the number of rows of x: k is cut into `section_blocks` · 64 columns, at
// most eight sections; within one, steps in order, of x's planes the high one first, and of scaled weights each fold (16, 32 or
// 64 columns) as a sum of its own, acc = fma(sum, scale, acc), then with minima acc = fma(min, sum of x, acc); sections are added
// in order, from 0. multiply_block and add_section are the only places that know.
//
// Few rows (narrow): a block has one or two row tiles of W, each of its warps a section; it is bound by reading W, which streams
// through registers. Many rows (wide): a block has 128 rows of x and 128 or 64 of W, and copies both through shared memory.
#pragma once

#include "element_place.h"
#include "operands.h"
#include "prepared_x.h"

namespace choral_cuda {

struct Output {
  Rows y;  // from the first row that was prepared
  const float* bias;
  bool accumulate;
};

// A lane's part of a row tile's 64 columns.
template <class Operand>
struct WeightBlock {
  uint4 vectors[Operand::kVectors];

  __device__ __forceinline__ void load(const unsigned char* record, int64_t block) {
    const unsigned char* from = record + block * block_bytes(Operand::kFormat) + threadIdx.x % kWarp * 16;
#pragma unroll
    for (int i = 0; i < Operand::kVectors; ++i) vectors[i] = load_streaming(from + i * kWarp * 16);
  }
};

// Scales of the lane's two rows, g and g + 8, at the steps where a fold ends.
struct FoldScales {
  float2 scale[4], min[4];

  __device__ __forceinline__ void load(const PackedWeight& w, const unsigned char* record, int64_t block, int steps_of_fold) {
    const int64_t first = w.group >= kBlockColumns ? block / (w.group / kBlockColumns) : block * (kBlockColumns / w.group);
    const int place = threadIdx.x % kWarp / 4 * 2;
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      if ((step + 1) % steps_of_fold != 0) continue;
      const int64_t at = (first + (w.group >= kBlockColumns ? 0 : step / steps_of_fold)) * kTileRows + place;
      scale[step] = *reinterpret_cast<const float2*>(record + w.scale_offset + at * sizeof(float));
      if (w.min_offset != 0) min[step] = *reinterpret_cast<const float2*>(record + w.min_offset + at * sizeof(float));
    }
  }
};

// Sums of a section: row_tiles times token_tiles fragments.
template <class Operand, int row_tiles, int token_tiles>
struct SectionSums {
  using Sum = typename Operand::Sum;
  static constexpr int kFoldRows = Operand::kScaled ? row_tiles : 1, kFoldTokens = Operand::kScaled ? token_tiles : 1;
  Sum acc[row_tiles][token_tiles][4];
  Sum fold[kFoldRows][kFoldTokens][4];
  Sum x_sum[kFoldTokens][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& row : acc) {
      for (auto& c : row) c[0] = c[1] = c[2] = c[3] = 0;
    }
    clear_fold();
  }
  __device__ __forceinline__ void clear_fold() {
#pragma unroll
    for (auto& row : fold) {
      for (auto& c : row) c[0] = c[1] = c[2] = c[3] = 0;
    }
#pragma unroll
    for (auto& c : x_sum) c[0] = c[1] = c[2] = c[3] = 0;
  }

  __device__ __forceinline__ void fold_in(const FoldScales (&scales)[kFoldRows], int step, bool has_min) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int n = 0; n < token_tiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          acc[m][n][i] = fmaf(fold[m][n][i], i < 2 ? scales[m].scale[step].x : scales[m].scale[step].y, acc[m][n][i]);
          if (has_min) {
            acc[m][n][i] = fmaf(i < 2 ? scales[m].min[step].x : scales[m].min[step].y, x_sum[n][i], acc[m][n][i]);
          }
        }
      }
    }
    clear_fold();
  }

  // 64 columns. x_at(tile, vector) is the lane's vector of x.
  template <class XAt>
  __device__ __forceinline__ void multiply_block(const WeightBlock<Operand> (&w)[row_tiles],
                                                 const FoldScales (&scales)[kFoldRows], int steps_of_fold, bool has_min,
                                                 XAt x_at) {
#pragma unroll
    for (int step = 0; step < Operand::kSteps; ++step) {
      uint32_t a[row_tiles][4];
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) Operand::fragment(w[m].vectors, step, a[m]);
#pragma unroll
      for (int n = 0; n < token_tiles; ++n) {
        const uint4 x = x_at(n, step * Operand::kXVectors / Operand::kSteps);
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
          if constexpr (Operand::kScaled) {
            Operand::multiply(fold[m][n], a[m], x, step);
          } else {
            Operand::multiply(acc[m][n], a[m], x, step);
          }
        }
        if constexpr (Operand::kScaled) {
          const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
          if (has_min) Operand::multiply(x_sum[n], ones, x, step);
        }
      }
      if constexpr (Operand::kScaled) {
        if ((step + 1) % steps_of_fold == 0) fold_in(scales, step, has_min);
      }
    }
  }
};

template <class Sum>
__device__ __forceinline__ void add_section(Sum& total, Sum section) {
  total += section;
}

template <class Operand>
__device__ __forceinline__ int steps_of_fold(const PackedWeight& w) {
  return Operand::kScaled && w.group < kBlockColumns ? w.group / 16 : 4;
}

// y at row `token` of the slab and row `n` of W.
template <class Operand>
__device__ __forceinline__ void finish(const PackedWeight& w, const PreparedX& x, const Output& out, int64_t token, int64_t n,
                                       typename Operand::Sum sum) {
  float value;
  if constexpr (Operand::kFormat == Format::kInt8Rows) {
    const unsigned char* record = w.image + n / kTileRows * w.tile_bytes;
    const int row = static_cast<int>(n % kTileRows);
    sum -= w.input_offset * reinterpret_cast<const int32_t*>(record + w.sum_offset)[row];
    value = static_cast<float>(sum) * reinterpret_cast<const float*>(record + w.scale_offset)[scale_place(row)];
    value *= x.factors[token];
  } else {
    value = Operand::kFormat == Format::kF16 ? sum * x.factors[token] : sum;
  }
  float* y = out.y[token] + n;
  if (out.bias != nullptr) value += out.bias[n];
  if (out.accumulate) value += *y;
  *y = value;
}

inline constexpr int kMatmulThreads = 256, kMatmulWarps = kMatmulThreads / kWarp;
static_assert(kMatmulWarps == kSections);

template <class Operand, int row_tiles, int token_tiles>
__global__ void __launch_bounds__(kMatmulThreads) narrow_kernel(PackedWeight w, PreparedX x, Output out) {
  using Sums = SectionSums<Operand, row_tiles, token_tiles>;
  using Sum = typename Operand::Sum;
  constexpr int kRowsOfBlock = row_tiles * kTileRows, kTokensOfBlock = token_tiles * kTokens;
  constexpr int kAhead = Operand::kVectors == 4 ? 2 : 4;
  Sum* parts = shared_memory<Sum>();  // [section][token][row]
  const int section = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t row_tile = int64_t{blockIdx.x} * row_tiles, token_tile = int64_t{blockIdx.y} * token_tiles;
  const int64_t all_row_tiles = ceil_div<int64_t>(w.rows, kTileRows);
  const int begin = section * w.section_blocks;
  const int end = begin + w.section_blocks < w.blocks ? begin + w.section_blocks : w.blocks;
  const int fold_steps = steps_of_fold<Operand>(w);
  const bool has_min = w.min_offset != 0;

  const unsigned char* records[row_tiles];  // beyond the last row tile the last one again
#pragma unroll
  for (int m = 0; m < row_tiles; ++m) {
    records[m] = w.image + (row_tile + m < all_row_tiles ? row_tile + m : all_row_tiles - 1) * w.tile_bytes;
  }
  WeightBlock<Operand> ahead[kAhead][row_tiles];
  constexpr bool kScalesAhead = token_tiles < 8;  // where there are registers
  FoldScales scales[Sums::kFoldRows], next_scales[Sums::kFoldRows];
  const auto load_scales = [&](FoldScales(&to)[Sums::kFoldRows], int block) {
    if constexpr (Operand::kScaled) {
      if (block >= end) return;
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) to[m].load(w, records[m], block, fold_steps);
    }
  };
  const auto load = [&](int slot, int block) {
    if (block >= end) return;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) ahead[slot][m].load(records[m], block);
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(i, begin + i);
  if (kScalesAhead) load_scales(next_scales, begin);

  Sums sums;
  sums.clear();
  for (int first = begin; first < end; first += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int block = first + i;
      if (block >= end) break;
      if constexpr (Operand::kScaled && kScalesAhead) {
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) scales[m] = next_scales[m];
        load_scales(next_scales, block + 1);
      } else {
        load_scales(scales, block);
      }
      sums.multiply_block(ahead[i], scales, fold_steps, has_min, [&](int n, int vector) {
        const int64_t tile = token_tile + n < x.row_tiles ? token_tile + n : x.row_tiles - 1;
        return *reinterpret_cast<const uint4*>(x.block(Operand::kFormat, tile, block) + (vector * kWarp + lane) * 16);
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
        const int row = m * kTileRows + lane / 4 + i / 2 * 8, token = n * kTokens + lane % 4 * 2 + i % 2;
        parts[(section * kTokensOfBlock + token) * kRowsOfBlock + row] = sums.acc[m][n][i];
      }
    }
  }
  __syncthreads();
  const int sections = ceil_div(w.blocks, w.section_blocks);
  for (int i = threadIdx.x; i < kTokensOfBlock * kRowsOfBlock; i += kMatmulThreads) {
    const int64_t token = token_tile * kTokens + i / kRowsOfBlock, n = row_tile * kTileRows + i % kRowsOfBlock;
    if (token >= x.rows || n >= w.rows) continue;
    Sum total = 0;
    for (int s = 0; s < sections; ++s) add_section(total, parts[s * kTokensOfBlock * kRowsOfBlock + i]);
    finish<Operand>(w, x, out, token, n, total);
  }
}

// Warps stand in 2 rows of W by 4 of x.
template <class Operand>
struct WideShape {
  static constexpr int kRowTiles = Operand::kScaled ? 2 : 4, kTokenTiles = 4;  // of a warp
  static constexpr int kBlockRowTiles = 2 * kRowTiles, kBlockTokenTiles = 4 * kTokenTiles;
  static constexpr int kStages = 3;
  static constexpr int kWeightVectors = kBlockRowTiles * Operand::kVectors * kWarp;  // of a stage
  static constexpr int kXVectors = kBlockTokenTiles * Operand::kXVectors * kWarp;
  static constexpr size_t kSharedBytes = size_t{kStages} * (kWeightVectors + kXVectors) * sizeof(uint4);
};

template <class Operand>
__global__ void __launch_bounds__(kMatmulThreads) wide_kernel(PackedWeight w, PreparedX x, Output out) {
  using Shape = WideShape<Operand>;
  using Sum = typename Operand::Sum;
  constexpr int kRowTiles = Shape::kRowTiles, kTokenTiles = Shape::kTokenTiles, kStages = Shape::kStages;
  constexpr int kStageVectors = Shape::kWeightVectors + Shape::kXVectors;
  uint4* shared = shared_memory<uint4>();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t all_row_tiles = ceil_div<int64_t>(w.rows, kTileRows);
  const int64_t block_row_tile = int64_t{blockIdx.x} * Shape::kBlockRowTiles,
                block_token_tile = int64_t{blockIdx.y} * Shape::kBlockTokenTiles;
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
        copy_16_async(stage + Shape::kWeightVectors + i, x.block(Operand::kFormat, valid ? tile : 0, block) + i % kOfTile * 16,
                      valid);
      }
    }
    commit_async_copies();
  };

  SectionSums<Operand, kRowTiles, kTokenTiles> sums;
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
    FoldScales scales[SectionSums<Operand, kRowTiles, kTokenTiles>::kFoldRows];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < Operand::kVectors; ++i) {
        weights[m].vectors[i] = stage[((warp_row_tile + m) * Operand::kVectors + i) * kWarp + lane];
      }
      if constexpr (Operand::kScaled) {
        const int64_t tile = block_row_tile + warp_row_tile + m;
        scales[m].load(w, w.image + (tile < all_row_tiles ? tile : 0) * w.tile_bytes, block, fold_steps);
      }
    }
    sums.multiply_block(weights, scales, fold_steps, has_min, [&](int n, int vector) {
      return stage[Shape::kWeightVectors + ((warp_token_tile + n) * Operand::kXVectors + vector) * kWarp + lane];
    });
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

#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t row = (block_row_tile + warp_row_tile + m) * kTileRows + lane / 4 + i / 2 * 8;
        const int64_t token = (block_token_tile + warp_token_tile + n) * kTokens + lane % 4 * 2 + i % 2;
        if (token < x.rows && row < w.rows) finish<Operand>(w, x, out, token, row, total[m][n][i]);
      }
    }
  }
}

template <class Operand, int row_tiles, int token_tiles>
cudaError_t launch_narrow(const Launch& launch, const PackedWeight& w, const PreparedX& x, const Output& out) {
  const GridShape shape{dim3(static_cast<unsigned>(ceil_div<int64_t>(w.rows, row_tiles * kTileRows)),
                             static_cast<unsigned>(ceil_div(x.row_tiles, token_tiles))),
                        dim3(kMatmulThreads),
                        size_t{kSections} * row_tiles * kTileRows * token_tiles * kTokens * sizeof(typename Operand::Sum)};
  return launch_kernel(narrow_kernel<Operand, row_tiles, token_tiles>, shape, launch.stream, w, x, out);
}

// Which kernel is a matter of speed alone: all give the same bits.
template <class Operand>
cudaError_t launch_matmul(const Launch& launch, const PackedWeight& w, const PreparedX& x, const Output& out) {
  using Shape = WideShape<Operand>;
  const dim3 wide(static_cast<unsigned>(ceil_div<int64_t>(w.rows, Shape::kBlockRowTiles * kTileRows)),
                  static_cast<unsigned>(ceil_div(x.row_tiles, Shape::kBlockTokenTiles)));
  if (x.row_tiles > 8 && int64_t{wide.x} * wide.y * 2 >= launch.sm_count) {
    return launch_kernel(wide_kernel<Operand>, {wide, dim3(kMatmulThreads), Shape::kSharedBytes}, launch.stream, w, x, out);
  }
  if (x.row_tiles == 1) return launch_narrow<Operand, 1, 1>(launch, w, x, out);
  if (x.row_tiles <= 4) return launch_narrow<Operand, 1, 4>(launch, w, x, out);
  return launch_narrow < Operand, Operand::kScaled ? 1 : 2, 8 > (launch, w, x, out);
}

}  // namespace choral_cuda
