// What all adapters of a step do to one layer, divided over the pool: by adapter, rows, ranks and columns, never along a sum
// (invariant 1).
#pragma once

#include <algorithm>
#include <limits>
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
  // Of the middle's columns those that are made. A multiple of LoRAMatrix::kShrinkRanks; a number of them, or all that follow.
  int64_t first_rank = 0, most_ranks = std::numeric_limits<int64_t>::max();

  int64_t ranks() const { return std::min(most_ranks, matrix->rank() - first_rank); }
};
void lora_shrink(const Context& ctx, std::span<const LoRAShrink> shrinks);

// y += B·middle of every term, for some consecutive rows. Terms that rescale the base find its bare product in y. y [rows, cols]
struct LoRAExpand {
  std::span<const LoRATerm> terms;
  MatrixView<float> y;
  int64_t col = 0;  // of the layer's outputs, y's first
};
void lora_expand(const Context& ctx, std::span<const LoRAExpand> expands);

// Columns [begin + h·stride, begin + h·stride + count) of a layer's outputs belong to head h.
struct HeadColumns {
  int64_t heads = 0, begin = 0, stride = 0, count = 0;

  int64_t of(int64_t head) const { return begin + head * stride; }
};

// What every term adds to a product with W that was moved to the other side of a dot product (latent attention), for some
// consecutive rows: the first in() of head h of y += factor · scale · (F·q)·B·A, of the first `columns.count` of head h of q and
// the rows of B of that head. q [rows, heads·(count or more)], y [rows, heads·(in() or more)]
struct LoRAAbsorb {
  std::span<const LoRATerm> terms;  // whose middles are made on the way
  HeadColumns columns;
  MatrixView<const float> q;
  MatrixView<float> y;
};
void lora_absorb(const Context& ctx, std::span<const LoRAAbsorb> items);

}  // namespace choral::kernels
