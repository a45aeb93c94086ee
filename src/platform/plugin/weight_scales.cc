#include "platform/plugin/weight_scales.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/checked_math.h"

namespace choral::platform {
namespace {

int64_t groups_of(int64_t cols, int64_t group_size) { return group_size == 0 ? 1 : ceil_div(cols, group_size); }

// `stored` has `groups` values for each stored row of all parts.
template <class T>
Result<std::vector<T>> in_order(const kernels::PackSpec& weight, std::span<const T> stored, int64_t groups) {
  std::vector<T> out;
  int64_t begin = 0;
  for (const kernels::WeightRows& part : weight.rows) {
    const int64_t rows = part.tensor.rows();
    if (std::ssize(stored) < (begin + rows) * groups) {
      return invalid_argument("{} values for the {} groups of {} rows of a weight", stored.size(), groups, begin + rows);
    }
    const auto take = [&](int64_t row) {
      const auto from = stored.begin() + (begin + row) * groups;
      out.insert(out.end(), from, from + groups);
    };
    for (int64_t row = 0; part.order.empty() && row < rows; ++row) take(row);
    for (const int32_t row : part.order) take(row);
    begin += rows;
  }
  return out;
}

// The code of the number that is nearest.
int8_t e2m1_code(float value) {
  constexpr std::array kNumbers{0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  const auto distance = [&](float number) { return std::abs(std::abs(value) - number); };
  const auto nearest =
      std::min_element(kNumbers.begin(), kNumbers.end(), [&](float a, float b) { return distance(a) < distance(b); });
  return static_cast<int8_t>(nearest - kNumbers.begin() + (value < 0 ? 8 : 0));
}

std::string_view input_of(const WeightForm& form) {
  if (form.has_fixed_input) return "int8 rows of x with a fixed scale";
  switch (form.activations) {
    case kernels::Activations::kFull: return "x in full";
    case kernels::Activations::kInt8Blocks: return "int8 blocks of x";
    case kernels::Activations::kInt8Rows: return "int8 rows of x";
    case kernels::Activations::k16Bits: return "x in 16 bits";
  }
  CHORAL_CHECK(false, "every form of x has a name");
}

}  // namespace

WeightForm WeightForm::of(const kernels::PackSpec& weight) {
  return {.format = weight.format,
          .activations = weight.activations,
          .bits = weight.bits,
          .codebook = weight.codebook,
          .group_size = weight.group_size,
          .has_zeros = !weight.zeros.empty(),
          .has_k_order = !weight.k_order.empty(),
          .has_fixed_input = weight.fixed_input.has_value()};
}

std::string WeightForm::describe() const {
  std::string name = format == DType::kI8 ? fmt::format("int{}", bits) : std::string(dtype_name(format));
  if (codebook == kernels::Codebook::kE2M1) name = "e2m1";
  name += " weights";
  if (group_size != 0) name += fmt::format(" in groups of {}", group_size);
  if (has_zeros) name += ", zero points";
  if (has_k_order) name += ", an order of k";
  return fmt::format("{}, {}", name, input_of(*this));
}

Result<WeightScales> WeightScales::of(const kernels::PackSpec& weight) {
  WeightScales out{.form = weight, .scales = {}, .zeros = {}, .k_order = {weight.k_order.begin(), weight.k_order.end()}};
  out.form.rows = {};
  out.form.scales = {};
  out.form.zeros = {};
  out.form.k_order = {};
  const int64_t groups = groups_of(weight.rows.front().tensor.cols(), weight.group_size);
  CHORAL_TRY(out.scales, in_order(weight, weight.scales, groups));
  if (!weight.zeros.empty()) {
    CHORAL_TRY(out.zeros, in_order(weight, weight.zeros, groups));
  }
  return out;
}

void WeightScales::describe(choral_weight& weight) const {
  weight.bits = form.bits;
  weight.codebook = static_cast<int32_t>(form.codebook);
  weight.activations = static_cast<int32_t>(form.activations);
  weight.has_fixed_input = form.fixed_input ? 1 : 0;
  weight.input_scale = form.fixed_input ? form.fixed_input->scale : 0.0F;
  weight.input_offset = form.fixed_input ? form.fixed_input->offset : 0;
  weight.group_size = form.group_size;
  weight.scales = scales.data();
  weight.scale_count = std::ssize(scales);
  weight.zeros = zeros.empty() ? nullptr : zeros.data();
  weight.zero_count = std::ssize(zeros);
  weight.k_order = k_order.empty() ? nullptr : k_order.data();
  weight.k_order_count = std::ssize(k_order);
}

kernels::PackSpec WeightScales::with(std::span<const kernels::WeightRows> rows) const {
  kernels::PackSpec weight = form;
  weight.rows = rows;
  weight.scales = scales;
  weight.zeros = zeros;
  weight.k_order = k_order;
  return weight;
}

Status WeightScales::restore(int64_t i, std::span<const float> row, std::span<int8_t> q) const {
  const int64_t groups = groups_of(std::ssize(row), form.group_size);
  for (int64_t j = 0; j < std::ssize(row); ++j) {
    const int64_t at = i * groups + (form.group_size == 0 ? 0 : j / form.group_size);
    const float scale = scales[at] / (form.fixed_input ? form.fixed_input->scale : 1.0F);
    const float value = scale == 0 ? 0.0F : row[k_order.empty() ? j : k_order[j]] / scale;
    if (!std::isfinite(value)) return internal_error("row {} of a weight comes back with {}", i, value);
    const float integer = std::nearbyint(value) + static_cast<float>(zeros.empty() ? 0 : zeros[at]);
    q[j] =
        form.codebook == kernels::Codebook::kE2M1 ? e2m1_code(value) : static_cast<int8_t>(std::clamp(integer, -128.0F, 127.0F));
  }
  return {};
}

}  // namespace choral::platform
