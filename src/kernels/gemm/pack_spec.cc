#include "kernels/gemm/pack_spec.h"

#include "base/checked_math.h"
#include "kernels/gemm/gemm_float.h"
#include "kernels/gemm/gemm_fp8.h"
#include "kernels/gemm/gemm_integers.h"
#include "kernels/gemm/gemm_quant.h"
#include "kernels/gemm/int8/gemm_int8.h"
#include "kernels/gemm/reordered_matrix.h"

namespace choral::kernels {
namespace {

Planes planes_of(Activations activations) {
  switch (activations) {
    case Activations::kInt8Blocks: return Planes::kOne;
    case Activations::kInt8Rows: return Planes::kOneScale;
    case Activations::kFull:
    case Activations::k16Bits: break;
  }
  return Planes::kTwo;
}

// Calls take(part, its first scale or zero, how many of them) for each part.
template <class Take>
Status for_each_part(const PackSpec& spec, Take take) {
  size_t begin = 0;
  for (const WeightRows& rows : spec.rows) {
    const int64_t groups = spec.group_size == 0 ? 1 : ceil_div(rows.tensor.cols(), spec.group_size);
    const auto count = static_cast<size_t>(rows.tensor.rows() * groups);
    if (spec.scales.size() - begin < count) {
      return invalid_argument("{} scales for more than {} groups of weights", spec.scales.size(), begin);
    }
    take(rows, begin, count);
    begin += count;
  }
  if (!spec.zeros.empty() && spec.zeros.size() != spec.scales.size()) {
    return invalid_argument("{} zero points for {} scales", spec.zeros.size(), spec.scales.size());
  }
  return {};
}

// The product that is made for int8 rows of x takes symmetric bytes, in groups that it has kernels for.
bool has_int8_product(const PackSpec& spec) {
  const int64_t group = spec.group_size;
  return spec.activations == Activations::kInt8Rows && spec.bits == 8 && spec.zeros.empty() &&
         (group == 0 || group == 32 || group == 64 || group == 128);
}

Result<std::unique_ptr<PackedMatrix>> pack_int8_product(const PackSpec& spec, ThreadPool& pool) {
  std::vector<Int8Part> parts;
  CHORAL_RETURN_IF_ERROR(for_each_part(spec, [&](const WeightRows& rows, size_t begin, size_t count) {
    parts.push_back({rows, spec.scales.subspan(begin, count)});
  }));
  return pack_int8(parts, {.group_size = spec.group_size, .input = {.fixed = spec.fixed_input}}, pool);
}

Result<std::unique_ptr<PackedMatrix>> pack_in_their_bits(const PackSpec& spec, ThreadPool& pool) {
  if (spec.fixed_input) {
    return unsupported(
        "x with one scale for all rows is multiplied with symmetric int8 weights in groups of 32, 64, 128 or none, "
        "not with {}{} bits in groups of {}",
        spec.zeros.empty() ? "" : "asymmetric ", spec.bits, spec.group_size);
  }
  std::vector<IntegerPart> parts;
  CHORAL_RETURN_IF_ERROR(for_each_part(spec, [&](const WeightRows& rows, size_t begin, size_t count) {
    parts.push_back(
        {rows, spec.scales.subspan(begin, count), spec.zeros.empty() ? spec.zeros : spec.zeros.subspan(begin, count)});
  }));
  return pack_integers(
      parts, {.bits = spec.bits, .group_size = spec.group_size, .codebook = spec.codebook, .planes = planes_of(spec.activations)},
      pool);
}

Result<std::unique_ptr<PackedMatrix>> pack_fp8_weight(const PackSpec& spec, ThreadPool& pool) {
  std::vector<Fp8Part> parts;
  CHORAL_RETURN_IF_ERROR(for_each_part(spec, [&](const WeightRows& rows, size_t begin, size_t count) {
    parts.push_back({rows, spec.scales.subspan(begin, count)});
  }));
  return pack_fp8(parts, spec.group_size, pool);
}

Result<std::unique_ptr<PackedMatrix>> pack_int8_rows(const PackSpec& spec, ThreadPool& pool) {
  CHORAL_TRY(auto matrix, has_int8_product(spec) ? pack_int8_product(spec, pool) : pack_in_their_bits(spec, pool));
  if (spec.k_order.empty()) return matrix;
  return reorder_input(std::move(matrix), spec.k_order);
}

}  // namespace

Result<std::unique_ptr<PackedMatrix>> pack_weight(const PackSpec& spec, ThreadPool& pool) {
  if (spec.format == DType::kI8) return pack_int8_rows(spec, pool);
  if (spec.format == DType::kF8E4M3) return pack_fp8_weight(spec, pool);
  if (facts(spec.format).is_block) return pack_quantised(spec.rows, pool, planes_of(spec.activations));
  return pack_float(spec.rows, spec.format, pool);
}

}  // namespace choral::kernels
