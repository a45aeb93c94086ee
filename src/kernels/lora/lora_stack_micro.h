// What lora.h's operations need besides lora_micro.h: rows of stacked weights and of inputs as float, rounded to the output's
// type first; a panel of B turned so that ranks are rows; and the one rounding of a result. One table for each CPU level; all
// levels agree bit for bit (every step here is exact or one rounding to nearest even).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_level.h"
#include "tensor/dtype.h"

namespace choral::kernels {

// Types are kF32, kF16 or kBF16.
struct LoRAStackKernels {
  // out[i] = row[i] rounded to `as`
  void (*widen_row)(DType type, DType as, const std::byte* row, int64_t count, float* out);

  // panel[j][c] = columns[c][j] rounded to `as`, for 16 rows `columns` of `rank` values; panel has round_up(rank, 8) rows of 16.
  void (*turn_panel)(DType type, DType as, const std::byte* const* columns, int64_t rank, float* panel);

  // sums[c] = Σ_j middle[j]·panel[j][c] in the order and the roundings of lora_micro.h's expand, without the panel: for one row.
  void (*expand_row)(DType type, DType as, const std::byte* const* columns, int64_t rank, const float* middle, float* sums);

  // out[i] = sums[i] (+ out[i]), rounded to the type
  void (*finish_row)(DType type, const float* sums, int64_t count, bool add, std::byte* out);
};

const LoRAStackKernels& lora_stack_kernels(CpuLevel level);

}  // namespace choral::kernels
