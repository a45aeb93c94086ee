// The inner kernels of the quantised GEMM: some rows of quantised x times up to four neighbouring panels, the whole of k.
// `direct` reads the packed bytes once for few rows (decode); `tiled` unpacks 256 k of the panels at a time into `work` and
// runs all rows over them (prefill). Both run the same operations in the same order for each output: see ref/quant.h.
// Chosen by quant_kernel(); pure functions, called by gemm_quant.cc.
#pragma once

#include <string_view>

#include "base/cpu_level.h"
#include "kernels/quant/quant_panels.h"
#include "kernels/quant/quantise_planes.h"

namespace choral::kernels {

inline constexpr int kQuantDirectRows = 4;
inline constexpr int kQuantPanelsAtOnce = 4;
inline constexpr int kQuantTileColumns = kQuantPanelsAtOnce * kQuantLanes;
inline constexpr int kQuantChunkBlocks = 8;
// Bytes of one chunk of four panels unpacked: a byte a weight, and two scales and a minimum as float for each block.
inline constexpr int64_t kQuantWorkBytes =
    kQuantChunkBlocks * (kQuantPanelsAtOnce * kQuantSteps * kQuantStepBytes + 3 * kQuantTileColumns * int64_t{sizeof(float)});

// The "width" of 8-bit weights of which an unpacked chunk holds magnitude and sign apart, in two bytes: of half as many blocks.
inline constexpr int kQuantSplitBits = 9;

struct QuantKernelArgs {
  const std::byte* panels;  // `panel_count` panels, panel_bytes apart
  int64_t panel_bytes;
  int panel_count;          // 1 to 4
  const QuantisedBlock* x;  // [rows][blocks]
  int64_t blocks;
  int64_t rows;
  float* out;       // [rows][64], overwritten
  std::byte* work;  // kQuantWorkBytes, 64-byte aligned; `direct` does without
};

struct QuantKernel {
  std::string_view name;                   // "avx512 vnni"
  int32_t zero;                            // what quantise_rows is told
  void (*direct)(const QuantKernelArgs&);  // rows <= 4
  void (*tiled)(const QuantKernelArgs&);   // any rows
};

QuantKernel quant_kernel(DType type, CpuLevel level);
// One for each level that has its own form.
QuantKernel quant_kernel_base(DType type);
namespace x86 {
QuantKernel quant_kernel_avx2(DType type);
QuantKernel quant_kernel_avx512(DType type);
QuantKernel quant_kernel_vnni(DType type);
}  // namespace x86

}  // namespace choral::kernels
