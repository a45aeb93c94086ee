#include "kernels/gemm/gemm_quant.h"

#include <vector>

#include "kernels/gemm/gemm_quant_matrix.h"

namespace choral::kernels {
namespace {

Status check_part(const WeightRows& part, size_t index, const TensorView& first) {
  const TensorView& t = part.tensor;
  if (!can_pack_quantised(t.dtype)) {
    return unsupported("part {} of a quantised weight is {}, which is not a GGUF block type; pack it as float", index,
                       dtype_name(t.dtype));
  }
  if (t.dtype != first.dtype) {
    return unsupported("part {} of a fused weight is {}, part 0 is {}; parts must share one type", index, dtype_name(t.dtype),
                       dtype_name(first.dtype));
  }
  if (t.shape.rank() == 0 || t.shape.elements() <= 0)
    return invalid_argument("part {} of a quantised weight is empty: shape {}", index, t.shape.to_string());
  if (t.cols() != first.cols()) {
    return invalid_argument("part {} of a fused weight has {} inputs, part 0 has {}; all must read the same x", index, t.cols(),
                            first.cols());
  }
  if (t.cols() % facts(t.dtype).block_elements != 0) {
    return invalid_argument("part {} has rows of {} elements, which is not a multiple of {}'s block of {}", index, t.cols(),
                            dtype_name(t.dtype), facts(t.dtype).block_elements);
  }
  if (t.data == nullptr || !t.device.host_accessible)
    return invalid_argument("part {} of a quantised weight is not in host memory", index);
  for (const int32_t row : part.order) {
    if (row < 0 || row >= t.rows()) return invalid_argument("part {}'s row order names row {}, it has {}", index, row, t.rows());
  }
  return {};
}

}  // namespace

bool can_pack_quantised(DType type) { return has_quant_form(type); }

Result<std::unique_ptr<PackedMatrix>> pack_quantised(std::span<const WeightRows> parts, ThreadPool& pool, Planes planes) {
  if (parts.empty()) return invalid_argument("a weight needs at least one part");
  std::vector<const std::byte*> rows;
  for (size_t i = 0; i < parts.size(); ++i) {
    CHORAL_RETURN_IF_ERROR(check_part(parts[i], i, parts[0].tensor));
    const TensorView& t = parts[i].tensor;
    if (parts[i].order.empty()) {
      for (int64_t r = 0; r < t.rows(); ++r) rows.push_back(t.row(r));
    } else {
      for (const int32_t r : parts[i].order) rows.push_back(t.row(r));
    }
  }
  const DType type = parts[0].tensor.dtype;
  const int64_t n = std::ssize(rows), k = parts[0].tensor.cols();
  const auto pack = [&](int64_t first, int64_t count, std::byte* panel) {
    pack_quant_panel(type, std::span(rows).subspan(first, count), k / kQuantBlock, panel);
  };
  return pack_panels({quant_form(type), std::string(dtype_name(type)), n, k, planes}, pack, pool);
}

}  // namespace choral::kernels
