// The micro-kernels behind y = x·Wᵀ with float weights, one table for each CPU level, and what they are given.
// A micro-kernel fills a tile of R rows × P panels in registers: acc[r][c] = fma(x[r][k], w[k][c], acc[r][c]) for k = 0, 1, 2, …,
// one chain for each output (kBase: product and sum rounded apart, it has no FMA). A kernel that resumes takes up the chain from
// the stored float, so how k and rows are cut never changes a bit (invariant 1), and every kernel of a level agrees with the
// others.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/cpu_level.h"
#include "kernels/gemm/gemm_float_panels.h"

namespace choral::kernels {

inline constexpr int64_t kXChunk = 16;  // x is packed as [k / 16][rows][16]: broadcasts of one tile come from few cache lines

struct MicroArgs {
  const float* x;        // packed rows of the tile, at the first k
  const std::byte* w;    // first panel, at the first k, or at the scales before it (group_end = 0)
  int64_t panel_stride;  // bytes from one panel to the next
  int64_t k;             // a multiple of 16 except at the end of a row
  float* out;            // [R][P·16], 64-byte aligned
  int64_t out_stride;    // floats, a multiple of 16
  bool resume;           // go on from what `out` holds, else from 0
  float* wide;           // of a widening kernel: panels of [k][16] floats, `wide_stride` floats apart
  int64_t wide_stride;

  // Of e4m3 weights: the scales of the first k's group, the k before the next scales, and the k from scales to scales.
  const float* scales;
  int64_t group_end;
  int64_t group;

  // Software prefetch: for each two k one pair of weights of every panel at `ahead`, which then moves on by `ahead_step`
  // and, at k = jump_at, by `ahead_jump`: past the panels that are being read to those that come next.
  const std::byte* ahead;
  int64_t ahead_panel_stride;
  int64_t ahead_step;
  int64_t jump_at;
  int64_t ahead_jump;
  int64_t ahead_scales;  // bytes it moves on past scales
};
using MicroKernel = void (*)(const MicroArgs&);

struct FloatKernels {
  std::string_view name;   // "avx512 fma"
  int max_direct_rows;     // up to here one row tile runs down whole panels
  int max_in_place_tiles;  // up to here each row tile widens weights in registers; of more the first widens them for all
  int tile_rows;           // most rows of a micro-kernel
  int tile_panels;         // panels of a micro-kernel for more than max_direct_rows rows

  int (*panels_for)(int rows);                                // most panels of a micro-kernel with so many rows
  MicroKernel (*micro)(DType weights, int rows, int panels);  // panels: panels_for(rows) or a smaller power of two
  // The same for bf16, f16 and e4m3, at most tile_panels panels and at least tile_rows / 2 rows, and the widened weights go to
  // args.wide as well: stores are free beside multiply-adds, a pass of their own is not (5 % of 128 rows).
  MicroKernel (*widening)(DType weights, int rows, int panels);
};

const FloatKernels& float_kernels(CpuLevel level);
const FloatKernels& base_float_kernels();
const FloatKernels& avx2_float_kernels();
const FloatKernels& avx512_float_kernels();

}  // namespace choral::kernels
