// Products of several matrices at once, each with rows of its own: the experts of a mixture. The panels of all of them are
// divided over the pool together, so that a matrix that few rows meet costs its bytes and not a parallel region. Each product has
// the bits of its own multiply(), which is this of one. Pure function; see PackedMatrix for threads and scratch.
#pragma once

#include <span>

#include "kernels/gemm/packed_matrix.h"

namespace choral::kernels {

// y = x·Wᵀ with the epilogue.
struct GroupProduct {
  const PackedMatrix* w = nullptr;  // on the host
  ProductInput x;                   // [m, k]
  Epilogue epilogue;
  MatrixView<float> y;  // [m, n], apart from every other product's; m may be 0
};

void grouped_matmul(const Context& ctx, std::span<const GroupProduct> products);

}  // namespace choral::kernels
