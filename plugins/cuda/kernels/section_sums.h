// The arithmetic of products on mma.sync and wgmma, W as A and rows of x as B, for the kernels that differ in what they keep
// where.
//
// The order of a sum, whatever the kernel, the tile and the number of rows of x: k is cut into sections of `section_blocks` · 64
// columns, at most eight; within one, steps in order, of x's planes the high one first, and of scaled weights each fold (16, 32
// or 64 columns) as a sum of its own, acc = fma(sum, scale, acc), then with minima acc = fma(min, sum of x, acc); sections are
// added in order, from 0. multiply_block, start_steps, fold_in and add_section are the only places that know.
#pragma once

#include "element_place.h"
#include "operands.h"
#include "products.h"

namespace choral_cuda {

// A lane's part of a row tile's 64 columns.
template <class Operand>
struct WeightBlock {
  uint4 vectors[Operand::kVectors];

  __device__ __forceinline__ void load(const unsigned char* record, int64_t block) {
    const unsigned char* from = record + block * block_bytes(Operand::kFormat) + threadIdx.x % kWarp * 16;
#pragma unroll
    for (int i = 0; i < Operand::kVectors; ++i) vectors[i] = load_streaming(from + i * kWarp * 16);
  }
  // Into L2.
  __device__ __forceinline__ static void fetch(const unsigned char* record, int64_t block) {
    constexpr int kLine = 128, kLines = block_bytes(Operand::kFormat) / kLine;
    const int lane = threadIdx.x % kWarp;
    if (lane < kLines) fetch_line(record + block * block_bytes(Operand::kFormat) + lane * kLine);
  }
};

inline constexpr int kStepsOfBlock = 4;  // of 16 columns

// Where the scales of a weight's blocks lie: of several groups in a block, or of a group over several blocks.
struct FoldPlaces {
  int groups_of_block, blocks_of_group;

  __device__ __forceinline__ explicit FoldPlaces(const PackedWeight& w)
      : groups_of_block(w.group < kBlockColumns ? kBlockColumns / w.group : 1),
        blocks_of_group(w.group < kBlockColumns ? 1 : w.group / kBlockColumns) {}
  __device__ __forceinline__ int first_group(int block) const {
    return blocks_of_group == 1 ? block * groups_of_block : block / blocks_of_group;
  }
};

// Scales of the lane's two rows, g and g + 8, at the steps where a fold ends. steps: of a fold, 1, 2 or 4 of 16 columns; 0: any.
template <int steps>
struct FoldScales {
  static constexpr int kFolds = kStepsOfBlock / (steps == 0 ? 1 : steps);
  float2 scale[kFolds], min[kFolds];

  static __device__ __forceinline__ int fold_of(int step) { return steps == 0 ? step : step / steps; }

  __device__ __forceinline__ void load(const PackedWeight& w, const FoldPlaces& places, const unsigned char* record, int block,
                                       int steps_of_fold) {
    const int64_t first = places.first_group(block);
    const int place = threadIdx.x % kWarp / 4 * 2;
#pragma unroll
    for (int step = 0; step < kStepsOfBlock; ++step) {
      if ((step + 1) % steps_of_fold != 0) continue;
      const int64_t at = (first + step / steps_of_fold) * kTileRows + place;
      scale[fold_of(step)] = *reinterpret_cast<const float2*>(record + w.scale_offset + at * sizeof(float));
      if (w.min_offset != 0) min[fold_of(step)] = *reinterpret_cast<const float2*>(record + w.min_offset + at * sizeof(float));
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
  }

  // The fold that ends at `step`. x_sum_at(tile, fold) are the sums of the lane's two rows of x.
  template <class Scales, class XSumAt>
  __device__ __forceinline__ void fold_in(const Scales (&scales)[kFoldRows], int step, int steps_of_fold, bool has_min,
                                          XSumAt x_sum_at) {
    const int at = Scales::fold_of(step);
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int n = 0; n < token_tiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          acc[m][n][i] = fmaf(fold[m][n][i], i < 2 ? scales[m].scale[at].x : scales[m].scale[at].y, acc[m][n][i]);
        }
      }
    }
    clear_fold();
    if (!has_min) return;
#pragma unroll
    for (int n = 0; n < token_tiles; ++n) {
      const float2 x_sum = x_sum_at(n, step / steps_of_fold);
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          acc[m][n][i] = fmaf(i < 2 ? scales[m].min[at].x : scales[m].min[at].y, i % 2 == 0 ? x_sum.x : x_sum.y, acc[m][n][i]);
        }
      }
    }
  }

  // 64 columns. x_at(tile, vector) is the lane's vector of x.
  template <class Scales, class XAt, class XSumAt>
  __device__ __forceinline__ void multiply_block(const WeightBlock<Operand> (&w)[row_tiles], const Scales (&scales)[kFoldRows],
                                                 int steps_of_fold, bool has_min, XAt x_at, XSumAt x_sum_at) {
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
      }
      if constexpr (Operand::kScaled) {
        if ((step + 1) % steps_of_fold == 0) fold_in(scales, step, steps_of_fold, has_min, x_sum_at);
      }
    }
  }

  // `steps` of a block's, from `first` on, by the warpgroup's products, a group that runs on behind it. x is the address in
  // shared memory of the part of `steps_of_part` steps that they are in. Between a wait for the group and any use of its sums
  // comes hold_products(), and one more behind what wrote them. Row tiles take turns, since a product that follows another to the
  // same sums waits for it.
  template <int steps, int steps_of_part>
  __device__ __forceinline__ void start_steps(const WeightBlock<Operand> (&w)[row_tiles], uint32_t x, int first) {
    uint32_t a[row_tiles][steps][4];
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        Operand::fragment(w[m].vectors, first + step, a[m][step]);
#pragma unroll
        for (uint32_t& reg : a[m][step]) hold(reg);
      }
    }
    start_group();
#pragma unroll
    for (int step = 0; step < steps; ++step) {
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        Operand::template start<steps_of_part>(products()[m], a[m][step], x, (first + step) % steps_of_part);
      }
    }
    end_group();
  }
  __device__ __forceinline__ void hold_products() {
#pragma unroll
    for (auto& row : products()) {
#pragma unroll
      for (auto& c : row) {
#pragma unroll
        for (Sum& sum : c) hold(sum);
      }
    }
  }

 private:
  // What products are added to.
  __device__ __forceinline__ auto& products() {
    if constexpr (Operand::kScaled) {
      return fold;
    } else {
      return acc;
    }
  }
};

template <class Sum>
__device__ __forceinline__ void add_section(Sum& total, Sum section) {
  total += section;
}

template <class Operand>
__device__ __forceinline__ int steps_of_fold(const PackedWeight& w) {
  return Operand::kScaled && w.group < kBlockColumns ? w.group / 16 : kStepsOfBlock;
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

inline constexpr int kMatmulThreads = kMatmulWarps * kWarp;
static_assert(kMatmulWarps == kSections);

// Where a lane's sum i of fragment (m, n) belongs: rows of W and of x from those of the warp's first fragment on.
__device__ __forceinline__ int row_of_sum(int m, int i) { return m * kTileRows + threadIdx.x % kWarp / 4 + i / 2 * 8; }
__device__ __forceinline__ int token_of_sum(int n, int i) { return n * kTokens + threadIdx.x % 4 * 2 + i % 2; }

// The record of a row tile; beyond the last one the last one again, whose sums nobody asks for.
__device__ __forceinline__ const unsigned char* record_of(const PackedWeight& w, int64_t row_tile) {
  const int64_t all = ceil_div<int64_t>(w.rows, kTileRows);
  return w.image + (row_tile < all ? row_tile : all - 1) * w.tile_bytes;
}

}  // namespace choral_cuda
