#include "kernels/gemm/weight_parts.h"

#include <cmath>

namespace choral::kernels {

Status check_part(const WeightRows& part, size_t index, std::string_view weight, DType dtype, int64_t k) {
  const TensorView& t = part.tensor;
  if (t.dtype != dtype) return unsupported("part {} of {} is {}, not {}", index, weight, dtype_name(t.dtype), dtype_name(dtype));
  if (t.shape.rank() != 2 || t.shape[0] <= 0 || t.shape[1] <= 0) {
    return invalid_argument("part {} of {} has shape {}; a weight is [rows, k]", index, weight, t.shape.to_string());
  }
  if (t.shape[1] != k) {
    return invalid_argument("part {} has k = {} but part 0 has {}; stacked parts share their input", index, t.shape[1], k);
  }
  if (t.data == nullptr || !t.device.host_accessible) {
    return invalid_argument("part {} of {} is not in host memory", index, weight);
  }
  for (const int32_t row : part.order) {
    if (row < 0 || row >= t.rows()) {
      return invalid_argument("part {}'s row order names row {}, but the tensor has {} rows", index, row, t.rows());
    }
  }
  return {};
}

Status check_scale_count(const WeightRows& part, size_t index, std::span<const float> scales, int64_t groups) {
  const int64_t rows = part.tensor.rows();
  if (std::ssize(scales) == rows * groups) return {};
  return invalid_argument("part {} has {} scales; {} rows with {} each need {}", index, scales.size(), rows, groups,
                          rows * groups);
}

Status check_scales(const WeightRows& part, size_t index, std::span<const float> scales, int64_t groups) {
  CHORAL_RETURN_IF_ERROR(check_scale_count(part, index, scales, groups));
  for (int64_t i = 0; i < std::ssize(scales); ++i) {
    if (!std::isfinite(scales[i])) {
      return invalid_argument("part {} has a scale of {} for row {}; scales are finite", index, scales[i], i / groups);
    }
  }
  return {};
}

}  // namespace choral::kernels
