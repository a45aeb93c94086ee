// Rows of int8 as the kernels read them: blocks of k one after the other, in each all rows side by side, so that what a task goes
// through again and again is one piece of memory; as bytes, or widened to int16 for kernels that have no int8 product; k padded
// to 4 with zeros. Beside them, for each row and group, where an integer sum over weights stored as w + 128 begins: -128 · Σ q.
#pragma once

#include <span>

#include "base/arena.h"
#include "base/cpu_level.h"
#include "kernels/gemm/int8/int8_panels.h"
#include "tensor/view.h"

namespace choral::kernels {

struct Int8Rows {
  const std::byte* data;
  const int32_t* starts;  // [rows][groups]
  const float* scales;    // [rows]
  int64_t rows;
  int64_t k;        // padded
  int64_t block_k;  // a multiple of every short group, or all of k
  int64_t groups;
  int64_t element_bytes;  // 1 or 2

  int64_t block_width(int64_t k0) const { return std::min(block_k, k - k0 / block_k * block_k); }
  int64_t row_bytes(int64_t k0) const { return block_width(k0) * element_bytes; }  // from one row to the next
  const std::byte* at(int64_t row, int64_t k0) const {
    const int64_t block = k0 / block_k * block_k;
    return data + (block * rows + row * block_width(k0) + k0 - block) * element_bytes;
  }
};

// Their memory, of `scratch`; contents undefined. `scales` must live as long as the result.
Int8Rows make_int8_rows(Arena& scratch, const Int8Form& form, int64_t rows, std::span<const float> scales, int64_t block_k,
                        bool widened);
// Puts rows [begin, end) of q into `rows`.
void pack_int8_rows(CpuLevel level, const Int8Form& form, MatrixView<const int8_t> q, int64_t begin, int64_t end,
                    const Int8Rows& rows);

}  // namespace choral::kernels
