// The layout of packed float weights, and its packer. Panels of 16 output channels:
//   bf16  [panel][k / 2][16][2]  pairs of k in a 32-bit lane: one shift or mask widens it, and the tile unit takes it as it
//                                is; k is padded with zeros to a multiple of 32;
//   f16   [panel][k][16]         one vcvtph2ps widens a row of a panel;
//   f32   [panel][k][16];
//   e4m3  [panel][group] of 16 float scales · 2^8, then [k / 2][16][2] of the group's k: a pair of k in a 16-bit lane is shifted
//         into halves of 2^-8 of the value (base/float8.h). A group is a multiple of 16 k, the last one may be shorter.
// Panels begin at multiples of 64 bytes; missing channels of the last one are zero. Rows of any source type become float
// (kernels/quant/dequantise.h) and are then rounded to nearest even; e4m3 is packed as stored (gemm_fp8.h).
#pragma once

#include <algorithm>
#include <span>

#include "base/thread_pool.h"
#include "kernels/gemm/packed_matrix.h"
#include "kernels/gemm/panel_bytes.h"

namespace choral::kernels {

inline constexpr int64_t kPanelScaleBytes = kPanelRows * static_cast<int64_t>(sizeof(float));  // before each group of e4m3

struct FloatPanels {
  DType dtype = DType::kF32;
  int64_t n = 0, k = 0;
  int64_t group = 0;  // k of one scale; 0: there are none
  int64_t panel_bytes = 0;
  PanelBytes bytes = {};

  int64_t panels() const { return (n + kPanelRows - 1) / kPanelRows; }
  const std::byte* panel(int64_t p) const { return bytes.data() + p * panel_bytes; }
  // Bytes of one k of a panel, scales apart; of pairs only even k begin at a multiple of it.
  int64_t k_bytes() const { return kPanelRows * facts(dtype).block_bytes; }
  // Where an even k, `at`, lies in a panel; of the first k of a group, its scales.
  int64_t offset(int64_t at) const { return at * k_bytes() + (group == 0 ? 0 : (at + group - 1) / group * kPanelScaleBytes); }
  // How many k lie whole in the first `size` bytes of a panel.
  int64_t k_within(int64_t size) const {
    if (group == 0) return size / k_bytes();
    const int64_t group_bytes = kPanelScaleBytes + group * k_bytes();
    return size / group_bytes * group + std::max<int64_t>(0, size % group_bytes - kPanelScaleBytes) / k_bytes();
  }
};

int64_t float_panel_bytes(DType dtype, int64_t k);
// A weight [n, k] whose panels, or those of it widened, are more than any machine's memory: sizes of others can be multiplied.
bool is_beyond_memory(int64_t n, int64_t k);
// Of all panels of a weight [n, k].
int64_t float_panels_bytes(DType dtype, int64_t n, int64_t k);

// Checks the parts (same k, known types, host memory, order in range) and packs them, in parallel.
Result<FloatPanels> pack_float_panels(std::span<const WeightRows> parts, DType as, ThreadPool& pool);

void read_panel_row(const FloatPanels& panels, int64_t row, std::span<float> out);

}  // namespace choral::kernels
