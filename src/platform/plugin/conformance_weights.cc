// Tests of operators that multiply by a weight or read its rows.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/float8.h"
#include "kernels/quant/block_scales.h"
#include "platform/plugin/conformance.h"

namespace choral::platform {
namespace ops {
namespace {

using Results = std::vector<Out>;
constexpr int64_t kRows = 5, kOut = 40, kIn = 48;
// Which kernel multiplies is a matter of how many rows there are.
constexpr int64_t kNumbersOfRows[] = {kRows, 24, 96};

struct Stored {
  std::string_view feature;
  DType dtype;
};

// With weights of the types that models are made of without being asked; float32 is the least. The others: check_weight_form.
Status check_weights(Conformance& conformance, FunctionRef<Results(ConformanceRun&, const PackedMatrix&)> test) {
  for (const auto& [feature, dtype] : {Stored{{}, DType::kF32}, Stored{"bf16 weights", DType::kBF16}}) {
    bool packed = true;
    const Status status = conformance.check(feature, [&, stored = dtype](ConformanceRun& run) {
      const PackedMatrix* w = run.packed(kOut, kIn, stored);
      packed = packed && w != nullptr;
      return w == nullptr ? Results{} : test(run, *w);
    });
    if (packed || dtype == DType::kF32) CHORAL_RETURN_IF_ERROR(Status(status));
  }
  return {};
}

Results multiply(ConformanceRun& run, const PackedMatrix& w, In x) {
  const Out y = run.matrix(x.rows, w.n()), summed = run.matrix(x.rows, w.n());
  run.call<Matmul>(w, x, Epilogue{}, y);
  run.call<Matmul>(w, x, Epilogue{.bias = run.beside_packed(w.n()).data(), .accumulate = true}, summed);
  return Results{y, summed};
}

}  // namespace

Status Matmul::conform(Conformance& conformance) {
  return check_weights(conformance, [](ConformanceRun& run, const PackedMatrix& w) {
    Results results;
    for (const int64_t rows : kNumbersOfRows) {
      for (const Out& y : multiply(run, w, run.matrix(rows, w.k()))) results.push_back(y);
    }
    return results;
  });
}

Status GroupedMatmul::conform(Conformance& conformance) {
  return check_weights(conformance, [](ConformanceRun& run, const PackedMatrix& w) {
    const PackedMatrix* other = run.packed(kIn, kIn, DType::kF32);
    if (other == nullptr) return Results{};
    const Out x = run.matrix(kRows + 1, kIn), y = run.matrix(kRows, w.n()), z = run.matrix(1, kIn);
    const std::array products{
        kernels::GroupProduct{.w = &w, .x = {x.sub_rows(1, kRows), {}}, .epilogue = {}, .y = y},
        kernels::GroupProduct{.w = other, .x = {x.sub_rows(2, 0), {}}, .epilogue = {}, .y = z.sub_rows(0, 0)},
        kernels::GroupProduct{.w = other,
                              .x = {x.sub_rows(0, 1), {}},
                              .epilogue = {.bias = run.beside_packed(kIn).data(), .accumulate = true},
                              .y = z}};
    run.call<GroupedMatmul>(std::span<const kernels::GroupProduct>(products));
    return Results{y, z};
  });
}

Status GatherRows::conform(Conformance& conformance) {
  return check_weights(conformance, [](ConformanceRun& run, const PackedMatrix& w) {
    const Out out = run.matrix(3, kIn);
    run.call<GatherRows>(w, run.indices({7, 0, 39}), out);
    return Results{out};
  });
}

}  // namespace ops

namespace {

// Any bits will do but for the factors, which make W about as large as x.
std::vector<std::byte> random_blocks(ConformanceRun& run, DType type, int64_t elements) {
  const auto& block = facts(type);
  const int64_t blocks = elements / block.block_elements;
  std::vector<std::byte> bytes;
  for (const float value : run.values(blocks * block.block_bytes)) {
    bytes.push_back(static_cast<std::byte>(static_cast<int>((value + 1) * 127.5F)));
  }
  const auto factors = run.values(2 * blocks);
  const float most = kernels::block_reach(type);
  for (int64_t i = 0; i < blocks; ++i) {
    kernels::set_block_scales(type, bytes.data() + i * block.block_bytes, factors[2 * i] / most, factors[2 * i + 1] / most);
  }
  return bytes;
}

// Codes over the whole range of the form, with scales that make W about as large as x.
const kernels::PackedMatrix* pack_form(ConformanceRun& run, const WeightForm& form) {
  if (facts(form.format).is_block) {
    const int64_t cols = 2 * std::max<int64_t>(facts(form.format).block_elements, 64);
    const auto blocks = random_blocks(run, form.format, ops::kOut * cols);
    const kernels::WeightRows rows{{blocks.data(), form.format, {ops::kOut, cols}, kCpuDevice}, {}};
    return run.packed({.rows = {&rows, 1}, .format = form.format, .activations = form.activations});
  }
  if (facts(form.format).is_floating) return run.packed(ops::kOut, 2 * ops::kIn, form.format, form.activations);
  const bool floats = form.format == DType::kF8E4M3, codes = form.codebook == kernels::Codebook::kE2M1;
  const int64_t cols = std::max<int64_t>(2 * ops::kIn, form.group_size + 32);  // a last group that is shorter
  const int64_t groups = form.group_size == 0 ? 1 : ceil_div(cols, form.group_size);
  const float most = floats || codes ? 1.0F : static_cast<float>(1 << (form.bits - 1));
  const auto stored = [&](float value) -> uint8_t {
    if (floats) return to_float8_e4m3(value).bits;
    if (codes) return static_cast<uint8_t>(std::rint((value + 1) * 7.5F));
    return static_cast<uint8_t>(static_cast<int8_t>(std::clamp(std::rint(value * most), -most, most - 1)));
  };
  std::vector<uint8_t> elements;
  for (const float value : run.values(ops::kOut * cols)) elements.push_back(stored(value));
  // Values of x, at most 1, reach both ends of int8.
  const kernels::StaticQuant input{.scale = 0.0076F, .offset = 5};
  std::vector<float> scales = run.values(ops::kOut * groups);
  for (float& scale : scales) scale = (1.0F + 0.5F * scale) / most * (form.has_fixed_input ? input.scale : 1.0F);
  std::vector<int16_t> zeros;
  for (const float value : run.values(form.has_zeros ? ops::kOut * groups : 0)) {
    zeros.push_back(static_cast<int16_t>(std::rint(value * most / 4)));
  }
  std::vector<int32_t> k_order;
  for (int64_t k = cols; form.has_k_order && k-- > 0;) k_order.push_back(static_cast<int32_t>(k));
  const kernels::WeightRows rows{{std::as_bytes(std::span(elements)).data(), form.format, {ops::kOut, cols}, kCpuDevice}, {}};
  return run.packed({.rows = {&rows, 1},
                     .format = form.format,
                     .activations = form.activations,
                     .bits = form.bits,
                     .codebook = form.codebook,
                     .group_size = form.group_size,
                     .scales = scales,
                     .zeros = zeros,
                     .k_order = k_order,
                     .fixed_input = form.has_fixed_input ? std::optional(input) : std::nullopt});
}

}  // namespace

bool is_tried_with_matmul(const WeightForm& form) {
  return (form.format == DType::kF32 || form.format == DType::kBF16) && form.activations == kernels::Activations::kFull;
}

Status check_weight_form(const Context& ctx, const WeightForm& form, const OpTable& table) {
  return Conformance(ctx, table, staged_cpu_ops()).check(form.describe(), [&](ConformanceRun& run) {
    const kernels::PackedMatrix* w = pack_form(run, form);
    if (w == nullptr) return std::vector<ops::Out>{};
    if (form.activations != kernels::Activations::k16Bits) return ops::multiply(run, *w, run.matrix(ops::kRows, w->k()));
    return ops::multiply(run, *w, run.matrix_to_round(ops::kRows, w->k(), form.format));
  });
}

}  // namespace choral::platform
