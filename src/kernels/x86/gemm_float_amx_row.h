// What the tile unit does (gemm_float_amx.h), said with AVX-512 multiply-adds, bit for bit, for a single row: there this form
// draws about a quarter more from memory; at two rows they are equal. For one output, one block of 32 k and one term of x:
//   e = fma chain over k = 0, 2, …, 30 from 0;  o = fma chain over k = 1, 3, …, 31 from 0;  acc = acc + (e + o)
// rounded to nearest even, subnormal operands and results taken as zero (MXCSR is set and restored by the caller's scope).
#pragma once

#include <cstddef>

#include "kernels/x86/gemm_float_amx_split.h"

namespace choral::kernels {

struct AmxRowArgs {
  const float* x;      // SplitRows<float> of one row
  const std::byte* w;  // bf16 panels, each of whole blocks of 32 k
  int64_t panel_bytes;
  float* out;           // [P·16], 64-byte aligned
  int64_t ahead_bytes;  // prefetch distance in each panel; near its end that of the next P panels
};
using AmxRowKernel = void (*)(const AmxRowArgs&);

AmxRowKernel amx_row_kernel(int64_t panels);  // 1, 2 or 4

// Round to nearest even, subnormals as zero, no exceptions, for its scope in this thread.
class TileUnitRounding {
 public:
  TileUnitRounding();
  ~TileUnitRounding();
  TileUnitRounding(const TileUnitRounding&) = delete;
  TileUnitRounding& operator=(const TileUnitRounding&) = delete;

 private:
  unsigned saved_;
};

}  // namespace choral::kernels
