// A matrix whose columns stand in another order than x's: y = gather(x, order) · Wᵀ, for checkpoints whose groups of k are not
// neighbours (quant/integers/group_order.h).
#pragma once

#include "kernels/gemm/packed_matrix.h"

namespace choral::kernels {

// Column j of `matrix` belongs to x[order[j]]; `order` has each of 0 to k − 1 once, else an error.
Result<std::unique_ptr<PackedMatrix>> reorder_input(std::unique_ptr<PackedMatrix> matrix, std::span<const int32_t> order);

}  // namespace choral::kernels
