// What packers of codes with scales ask of every part of a weight alike.
#pragma once

#include "kernels/gemm/packed_matrix.h"

namespace choral::kernels {

// [rows, k] of `dtype` in host memory, with an order that names its rows; else an error that names the part. `weight`: "an int8
// weight".
Status check_part(const WeightRows& part, size_t index, std::string_view weight, DType dtype, int64_t k);
// One for each row and group.
Status check_scale_count(const WeightRows& part, size_t index, std::span<const float> scales, int64_t groups);
// And finite.
Status check_scales(const WeightRows& part, size_t index, std::span<const float> scales, int64_t groups);

// Calls visit(row of the tensor) in packed order.
template <class Visit>
void for_each_row(const WeightRows& part, Visit visit) {
  for (int64_t row = 0; part.order.empty() && row < part.tensor.rows(); ++row) visit(row);
  for (const int32_t row : part.order) visit(row);
}

}  // namespace choral::kernels
