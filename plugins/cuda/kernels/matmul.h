// How the products of a launch are multiplied: x prepared for all of them, then the kernels of W's operand, each of which is
// compiled in a file of its own.
#pragma once

#include "products.h"

namespace choral_cuda {

// To products.tiles and .factors.
template <int most>
cudaError_t prepare_x(const Launch& launch, const Products<most>& products);

struct OperandMatmul {
  cudaError_t (*one)(const Launch& launch, const Products<1>& products);
  cudaError_t (*many)(const Launch& launch, const Products<kMostProducts>& products);
};
extern const OperandMatmul kMatmulBF16, kMatmulF16, kMatmulInt4, kMatmulInt8, kMatmulE4M3, kMatmulInt8Rows, kMatmulF32;
// By one plane of x: CHORAL_X_16.
extern const OperandMatmul kMatmulBF16ByRounded, kMatmulF16ByRounded, kMatmulInt4ByRounded, kMatmulInt8ByRounded,
    kMatmulE4M3ByRounded;

}  // namespace choral_cuda
