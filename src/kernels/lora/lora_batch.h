// What all adapters of a step do to one layer, divided over the pool: by adapter, rows, ranks and columns, never along a sum
// (invariant 1).
#pragma once

#include <span>

#include "kernels/context.h"
#include "kernels/lora/lora_matrix.h"

namespace choral::kernels {

// middle = factor · scale · x·Aᵀ for some consecutive rows of one adapter. x [rows, in], middle [rows, rank]
struct LoRAShrink {
  const LoRAMatrix* matrix = nullptr;
  MatrixView<const float> x;
  float factor = 1.0F;
  MatrixView<float> middle;
};
void lora_shrink(const Context& ctx, std::span<const LoRAShrink> shrinks);

// y += B·middle of every term, for some consecutive rows. The terms neither rescale the base nor shift it. y [rows, out]
struct LoRAExpand {
  std::span<const LoRATerm> terms;
  MatrixView<float> y;
};
void lora_expand(const Context& ctx, std::span<const LoRAExpand> expands);

}  // namespace choral::kernels
