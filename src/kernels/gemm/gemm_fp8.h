// Weights kept as e4m3 (base/float8.h) with a float scale for each output channel, or for each channel and group of k, and
// multiplied with float activations: x is never rounded to 8 bits.
//   W[j, k] = round(float(code) · scale[j, group of k]) in fp32, and y = x·Wᵀ as with float weights (gemm_float.h)
// so y has the bits that W stored as float32 gives, on every CPU level and for any number of rows and threads. Bytes a weight: 1,
// and 4 for each scale. Layout: gemm_float_panels.h.
// Immutable after packing; see PackedMatrix for threads.
#pragma once

#include <memory>
#include <span>

#include "kernels/gemm/packed_matrix.h"

namespace choral::kernels {

struct Fp8Part {
  WeightRows rows;                // e4m3 [rows, k]
  std::span<const float> scales;  // [rows, groups], rows as stored
};

// A group is `group_size` k, a multiple of 32; 0: one scale for all of k. Parts are stacked in order and share k; a last group
// may be shorter. A wrong part is an error that names it, and the row for a code that is a NaN. Sources may be dropped
// afterwards.
Result<std::unique_ptr<PackedMatrix>> pack_fp8(std::span<const Fp8Part> parts, int64_t group_size, ThreadPool& pool);

}  // namespace choral::kernels
