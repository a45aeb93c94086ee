// The arithmetic of lora.h once its arguments are known to fit: rows grouped by adapter, each group against its part of a stack.
// Work is divided by (group, outputs, rows), never along a sum; a sum's order does not depend on that division, on the group's
// size or on the rows' places.
#pragma once

#include <span>

#include "kernels/lora/lora.h"

namespace choral::kernels {

struct LoRAStack {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t count = 0;  // n
  int64_t rows = 0;   // A: r, B: out
  int64_t cols = 0;   // A: in, B: r
  int64_t row_bytes = 0;

  const std::byte* row(int64_t adapter, int64_t i) const { return data + (adapter * rows + i) * row_bytes; }
};

// Row i of the result in sorted order: of inputs' row `input`, for output's row `output`.
struct LoRARow {
  int64_t input;
  int64_t output;
};
struct LoRAGroup {
  int64_t adapter;
  int64_t begin, count;  // of the sorted rows
};
struct LoRAGroups {
  std::span<const LoRARow> rows;
  std::span<const LoRAGroup> groups;
};

// Groups the first min(results, output_rows) of indices (-1: no group) in order of adapter, or one result's index for every
// output row. Lives in `scratch`.
LoRAGroups group_rows(std::span<const int64_t> indices, int64_t output_rows, int64_t adapters, Arena& scratch);

// output[row, :columns] = scaling · inputs[row]·Aᵀ
void shrink_stack(const Context& ctx, const LoRAGroups& groups, TensorView inputs, const LoRAStack& a, float scaling,
                  int64_t columns, MutableTensorView output);

// output[row, output_begin : output_begin + columns] (+)= inputs[row]·Bᵀ
void expand_stack(const Context& ctx, const LoRAGroups& groups, TensorView inputs, const LoRAStack& b, bool add,
                  int64_t output_begin, int64_t columns, MutableTensorView output);

}  // namespace choral::kernels
