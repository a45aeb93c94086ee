// The shrinks of one layer and step, divided over the pool: by adapter, rows and ranks, never along the sum (invariant 1).
#pragma once

#include <span>

#include "kernels/context.h"
#include "kernels/lora_matrix.h"

namespace choral::kernels {

// middle = factor · scale · x·Aᵀ for some consecutive rows of one adapter. x [rows, in], middle [rows, rank]
struct LoRAShrink {
  const LoRAMatrix* matrix = nullptr;
  MatrixView<const float> x;
  float factor = 1.0F;
  MatrixView<float> middle;
};

void lora_shrink(const Context& ctx, std::span<const LoRAShrink> shrinks);

}  // namespace choral::kernels
