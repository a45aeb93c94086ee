#include "kernels/gemm/pack_spec.h"

#include "base/checked_math.h"
#include "kernels/gemm/gemm_float.h"
#include "kernels/gemm/gemm_fp8.h"
#include "kernels/gemm/gemm_quant.h"
#include "kernels/gemm/int8/gemm_int8.h"

namespace choral::kernels {
namespace {

Result<std::unique_ptr<PackedMatrix>> pack_int8_weight(const PackSpec& spec, ThreadPool& pool) {
  std::vector<Int8Part> parts;
  size_t row = 0;
  for (const WeightRows& rows : spec.rows) {
    const auto count = static_cast<size_t>(rows.tensor.rows());
    if (spec.scales.size() - row < count) return invalid_argument("{} scales for more rows of int8", spec.scales.size());
    parts.push_back({rows, spec.scales.subspan(row, count)});
    row += count;
  }
  return pack_int8(parts, {.group_size = 0, .input = spec.input}, pool);
}

Result<std::unique_ptr<PackedMatrix>> pack_fp8_weight(const PackSpec& spec, ThreadPool& pool) {
  std::vector<Fp8Part> parts;
  size_t begin = 0;
  for (const WeightRows& rows : spec.rows) {
    const int64_t groups = spec.group_size == 0 ? 1 : ceil_div(rows.tensor.cols(), spec.group_size);
    const auto count = static_cast<size_t>(rows.tensor.rows() * groups);
    if (spec.scales.size() - begin < count) return invalid_argument("{} scales for more groups of fp8", spec.scales.size());
    parts.push_back({rows, spec.scales.subspan(begin, count)});
    begin += count;
  }
  return pack_fp8(parts, spec.group_size, pool);
}

}  // namespace

Result<std::unique_ptr<PackedMatrix>> pack_weight(const PackSpec& spec, ThreadPool& pool) {
  if (spec.format == DType::kI8) return pack_int8_weight(spec, pool);
  if (spec.format == DType::kF8E4M3) return pack_fp8_weight(spec, pool);
  if (facts(spec.format).is_block) return pack_quantised(spec.rows, pool);
  return pack_float(spec.rows, spec.format, pool);
}

}  // namespace choral::kernels
