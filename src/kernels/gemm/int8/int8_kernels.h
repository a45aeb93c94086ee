// The micro-kernels behind y = x·Wᵀ of int8 rows and int8 weights, one table for each CPU level, and what they are given.
// A micro-kernel fills a tile of R rows × P panels: integer sums over the steps of a group in registers, then, once for the
// group,
//   sum = start + (correction) + Σ (w + 128) · q     exact in int32
//   out = fma(float(sum), scale of the channel, out)
// and, after the last group, out = out · scale of the row. Sums of a group that is cut are kept as integers in between, so how k
// and rows are cut never changes a bit, and all kernels of all levels agree (ref/int8_gemm.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/cpu_level.h"

namespace choral::kernels {

struct Int8Args {
  int rows;  // R and P, for kernels that are not made for one of each
  int panels;
  int64_t panel_bytes;       // from one panel to the next
  int64_t group_bytes;       // from one group to the next
  const std::byte* header;   // of the first group in the first panel
  const std::byte* weights;  // and its weights, from the first step on
  bool corrected;
  int64_t groups;  // as many as are done, each of `steps` steps
  int64_t steps;

  const std::byte* x;     // of the first row, at the first step; element_bytes · 4 a step, one group after the other
  int64_t x_row_bytes;    // from one row to the next
  const int32_t* starts;  // of the first group in the first row
  int64_t starts_stride;
  const float* row_scales;  // null unless the last group of all is done here

  bool resume;    // the group goes on from `sums`
  bool complete;  // its sums go into `out`, else into `sums`
  bool first;     // it is the first group: nothing is in `out` yet
  int32_t* sums;  // [R][P·16], 64-byte aligned
  float* out;
  int64_t stride;  // of both, in elements, a multiple of 16

  // Software prefetch: a line of each panel for each step and each line of a header, `lines` of them; with `jump_at` lines left
  // it moves on by `jump`: past the panels that are being read to those that come next.
  const std::byte* ahead;
  int64_t lines;
  int64_t jump_at;
  int64_t jump;
};
using Int8Micro = void (*)(const Int8Args&);

struct Int8Kernels {
  std::string_view name;  // "avx512 vnni"
  bool widened;           // reads rows of int16
  int tile_rows;          // of a tile among several
  int direct_rows;        // most rows of a micro-kernel: so many need no second tile and read each weight once
  int block_k;  // k of the weights that all row tiles go over in turn: those of panels_for() panels stay near; 128 · 2^i
  int (*panels_for)(int rows);               // most panels of a micro-kernel with so many rows: 1, 2 or 4
  Int8Micro (*micro)(int rows, int panels);  // panels: panels_for(rows) or a smaller power of two
};

// For products of so many rows. The kernels of a level agree, so which are taken shows in time only.
const Int8Kernels& int8_kernels(CpuLevel level, int64_t rows);
const Int8Kernels& base_int8_kernels();
namespace x86 {
const Int8Kernels& avx2_int8_kernels();
const Int8Kernels& avxvnni_int8_kernels();
const Int8Kernels& avx512_int8_kernels();
const Int8Kernels& vnni_int8_kernels();
const Int8Kernels& amx_int8_kernels();
}  // namespace x86

}  // namespace choral::kernels
