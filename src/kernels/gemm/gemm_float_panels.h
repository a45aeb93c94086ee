// The layout of packed float weights, and its packer. Panels of 16 output channels:
//   bf16  [panel][k / 2][16][2]  pairs of k in a 32-bit lane: one shift or mask widens it, and the tile unit takes it as it
//                                is; k is padded with zeros to a multiple of 32;
//   f16   [panel][k][16]         one vcvtph2ps widens a row of a panel;
//   f32   [panel][k][16].
// Panels begin at multiples of 64 bytes; missing channels of the last one are zero. Rows of any source type become float
// (kernels/quant/dequantise.h) and are then rounded to nearest even.
#pragma once

#include <span>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "kernels/gemm/packed_matrix.h"

namespace choral::kernels {

struct FloatPanels {
  DType dtype = DType::kF32;
  int64_t n = 0, k = 0;
  int64_t panel_bytes = 0;
  AlignedBuffer bytes;

  int64_t panels() const { return (n + kPanelRows - 1) / kPanelRows; }
  const std::byte* panel(int64_t p) const { return bytes.data() + p * panel_bytes; }
  // Bytes of one k of a panel; for bf16 only even k begin at a multiple of it.
  int64_t k_bytes() const { return kPanelRows * facts(dtype).block_bytes; }
};

int64_t float_panel_bytes(DType dtype, int64_t k);
// Of all panels of a weight [n, k].
int64_t float_panels_bytes(DType dtype, int64_t n, int64_t k);

// Checks the parts (same k, known types, host memory, order in range) and packs them, in parallel.
Result<FloatPanels> pack_float_panels(std::span<const WeightRows> parts, DType as, ThreadPool& pool);

void read_panel_row(const FloatPanels& panels, int64_t row, std::span<float> out);

}  // namespace choral::kernels
