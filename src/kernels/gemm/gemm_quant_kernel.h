// The inner kernels of the quantised GEMM: some rows of quantised x times up to four neighbouring panels, the whole of k.
// `direct` reads the packed bytes once for few rows (decode); `tiled` runs all rows over 128 or 256 k of the panels at a time,
// unpacked into `work` where that is faster (prefill). Both run the same operations in the same order for each output: see
// ref/quant.h. Chosen by quant_kernel(); pure functions, called by gemm_quant_matrix.cc.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "base/checked_math.h"
#include "base/cpu_level.h"
#include "kernels/quant/quant_panels.h"
#include "kernels/quant/quantise_planes.h"

namespace choral::kernels {

inline constexpr int kQuantDirectRows = 4;
inline constexpr int kQuantPanelsAtOnce = 4;
inline constexpr int kQuantTileColumns = kQuantPanelsAtOnce * kQuantLanes;
inline constexpr int kQuantChunkBlocks = 8;
// Bytes of one chunk of four panels unpacked: a byte a weight, and up to two scales and two minimums as float for each block.
inline constexpr int64_t kQuantWorkBytes =
    kQuantChunkBlocks * (kQuantPanelsAtOnce * kQuantSteps * kQuantStepBytes + 4 * kQuantTileColumns * int64_t{sizeof(float)});

// The "width" of 8-bit weights of which an unpacked chunk holds magnitude and sign apart, in two bytes: of half as many blocks.
inline constexpr int kQuantSplitBits = 9;

struct QuantKernelArgs {
  QuantForm form;           // the one the kernel was chosen by, for what it leaves open
  const std::byte* panels;  // `panel_count` panels, panel_bytes apart
  int64_t panel_bytes;
  int panel_count;          // 1 to 4
  const QuantisedBlock* x;  // [rows][blocks]
  int64_t blocks;
  int64_t rows;
  float* out;       // [rows][64], overwritten
  std::byte* work;  // kQuantWorkBytes, 64-byte aligned; `direct` does without
  // What `tiled` asks memory for besides the weights that come next (companion.h).
  std::span<const std::span<const std::byte>> along = {};
};

struct QuantKernel {
  std::string_view name;                   // "avx512 vnni"
  int32_t zero;                            // what quantise_rows is told
  void (*direct)(const QuantKernelArgs&);  // rows <= 4
  void (*tiled)(const QuantKernelArgs&);   // any rows
  int tile_rows = 0;                       // of `tiled`; 0: it asks memory for nothing
};

// How many bytes `tiled` has room for in args.along, of so many rows and blocks.
constexpr int64_t most_along_bytes(const QuantKernel& kernel, int64_t rows, int64_t blocks) {
  constexpr int64_t kMost = 96 << 10;   // those of two calls lie in the second-level cache, beside weights and x
  constexpr int64_t kBlockBytes = 512;  // in a row tile: eight lines beside some hundred multiplications
  const int64_t tiles = kernel.tile_rows == 0 ? 0 : ceil_div(rows, kernel.tile_rows);
  return std::min(kMost, tiles / 2 * blocks * kBlockBytes);
}

inline constexpr QuantCodes kAnyGrid = QuantCodes::kIQ1;

// The forms there are kernels for; QuantForm::blocks is left open, and so is which grid's points codes are of.
inline constexpr std::array kQuantForms{
    QuantForm{8, QuantScales::kD},
    QuantForm{4, QuantScales::kD},
    QuantForm{5, QuantScales::kD},
    QuantForm{4, QuantScales::kDM},
    QuantForm{5, QuantScales::kDM},
    QuantForm{4, QuantScales::kK},
    QuantForm{5, QuantScales::kK},
    QuantForm{6, QuantScales::kK16},
    QuantForm{4, QuantScales::kF},
    QuantForm{8, QuantScales::kF},
    QuantForm{4, QuantScales::kFM},
    QuantForm{8, QuantScales::kFM},
    QuantForm{4, QuantScales::kF, QuantCodes::kE2M1},
    QuantForm{2, QuantScales::kK16M},
    QuantForm{3, QuantScales::kK16},
    QuantForm{4, QuantScales::kD, QuantCodes::kIQ4},
    QuantForm{4, QuantScales::kK8, QuantCodes::kIQ4},
    QuantForm{2, QuantScales::kF, QuantCodes::kTernary},
    QuantForm{3, QuantScales::kK8, kAnyGrid},
    QuantForm{3, QuantScales::kK16, kAnyGrid},
    QuantForm{4, QuantScales::kK8, kAnyGrid},
};

// What quantise_rows is told of a form whose sums begin at -`zero` times those of x: with minimums of halves, whose sums begin at
// 0, QuantisedBlock::start is the sums of x themselves.
constexpr int32_t start_factor(QuantForm form, int32_t zero) { return form.scales == QuantScales::kK16M ? -1 : zero; }

QuantKernel quant_kernel(QuantForm form, CpuLevel level);
// One for each level that has its own.
QuantKernel quant_kernel_base(QuantForm form);
namespace x86 {
QuantKernel quant_kernel_avx2(QuantForm form);
QuantKernel quant_kernel_avxvnni(QuantForm form);
QuantKernel quant_kernel_avx512(QuantForm form);
QuantKernel quant_kernel_vnni(QuantForm form);
}  // namespace x86

}  // namespace choral::kernels
