// Products that a CPU's tile unit computes, in an order of its own.
#pragma once

#include <string_view>

#include "kernels/gemm/gemm_float_blocking.h"

namespace choral::kernels {

struct TileProduct {
  std::string_view name;  // "amx tiles"
  // PackedMatrix::plan() and most_rows().
  const MatrixProduct* (*plan)(const FloatPanels& w, const Context& ctx, MatrixView<const float> x, const Epilogue& epilogue,
                               MatrixView<float> y, int threads);
  int64_t (*most_rows)();
};

// Of bf16 weights at the level; null: it has no such unit, or one that sums otherwise than it says.
const TileProduct* bf16_tile_product(CpuLevel level);

}  // namespace choral::kernels
