#include "quant/written/written_scheme.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/checked_math.h"
#include "quant/integers/bit_fields.h"

namespace choral::quant {
namespace {

using Parts = std::vector<WrittenPart>;

constexpr std::string_view kCompressedTensors = "compressed-tensors", kModelSlim = "modelslim", kGguf = "gguf";

// The codes as they are.
WrittenPart codes_part(DType dtype, int64_t rows, int64_t k) {
  return {"weight", dtype, {rows, k}, [](LayerValues& v) -> Result<Tensor> { return std::move(v.weight.codes); }};
}

WrittenPart scales_part(std::string name, int64_t rows, int64_t groups) {
  return {std::move(name), DType::kF32, {rows, groups}, [=](LayerValues& v) -> Result<Tensor> {
            CHORAL_TRY(auto tensor, Tensor::allocate(DType::kF32, {rows, groups}));
            std::memcpy(tensor.data(), v.weight.scales.data(), v.weight.scales.size() * sizeof(float));
            return tensor;
          }};
}

// Of one value.
WrittenPart constant_part(std::string name, int64_t rows, int64_t cols, float value) {
  return {std::move(name), DType::kF32, {rows, cols}, [=](LayerValues&) -> Result<Tensor> {
            CHORAL_TRY(auto tensor, Tensor::allocate(DType::kF32, {rows, cols}));
            std::ranges::fill(tensor.as<float>(), value);
            return tensor;
          }};
}

int64_t groups_of(const WrittenScheme& scheme, int64_t k) {
  const int64_t size = scheme.group_size(k);
  return size == 0 ? 1 : k / size;
}

// int-quantized, float-quantized: a code a byte.
Parts byte_parts(const WrittenScheme& scheme, const LayerToWrite& layer) {
  return {scales_part("weight_scale", layer.rows, groups_of(scheme, layer.k)), codes_part(scheme.codes, layer.rows, layer.k)};
}

// One float of the scale and offset of x.
WrittenPart input_part(std::string name, float (*value)(const kernels::StaticQuant&)) {
  return {std::move(name), DType::kF32, {1}, [=](LayerValues& v) -> Result<Tensor> {
            CHORAL_TRY(auto tensor, Tensor::allocate(DType::kF32, {1}));
            tensor.as<float>()[0] = value(v.input);
            return tensor;
          }};
}
WrittenPart input_scale_part() {
  return input_part("input_scale", [](const kernels::StaticQuant& input) { return input.scale; });
}

Parts fixed_byte_parts(const WrittenScheme& scheme, const LayerToWrite& layer) {
  Parts parts = byte_parts(scheme, layer);
  parts.insert(parts.begin(), input_scale_part());
  return parts;
}

// pack-quantized: 32 bits of codes in a word, along k.
Parts packed_parts(const WrittenScheme& scheme, const LayerToWrite& layer) {
  const int bits = scheme.bits;
  const int64_t rows = layer.rows, k = layer.k;
  const int64_t words = field_words(k, bits, FieldLayout::kDense);
  const auto pack = [=](LayerValues& v) -> Result<Tensor> {
    CHORAL_TRY(auto tensor, Tensor::allocate(DType::kI32, {rows, words}));
    for (int64_t r = 0; r < rows; ++r) {
      write_fields(v.weight.codes.as<int8_t>().data() + r * k, k, bits, tensor.as<uint32_t>().data() + r * words);
    }
    return tensor;
  };
  const auto shape = [=](LayerValues&) -> Result<Tensor> {
    CHORAL_TRY(auto tensor, Tensor::allocate(DType::kI64, {2}));
    tensor.as<int64_t>()[0] = rows;
    tensor.as<int64_t>()[1] = k;
    return tensor;
  };
  return {{"weight_packed", DType::kI32, {rows, words}, pack},
          scales_part("weight_scale", rows, groups_of(scheme, k)),
          {"weight_shape", DType::kI64, {2}, shape}};
}

// ModelSlim's 8 bits: offsets, which are zero, beside the scales.
Parts offset_parts(const WrittenScheme&, const LayerToWrite& layer) {
  return {scales_part("weight_scale", layer.rows, 1), constant_part("weight_offset", layer.rows, 1, 0),
          codes_part(DType::kI8, layer.rows, layer.k)};
}

// The steps of a product and the bias in them: y = (Σ q_x q_w + quant_bias) · deq_scale.
struct ProductSteps {
  float scale = 0;
  int32_t bias = 0;
};
Result<ProductSteps> product_steps(const LayerValues& v, int64_t row) {
  const float bias = v.bias.empty() ? 0 : v.bias[row];
  ProductSteps steps{.scale = v.input.scale * v.weight.scales[row]};
  if (steps.scale == 0) steps.scale = std::abs(bias);  // a row of zeros has its bias alone, which is one step
  const auto codes = v.weight.codes.view();
  const auto* q = reinterpret_cast<const int8_t*>(codes.row(row));
  const int64_t sum = std::accumulate(q, q + codes.cols(), int64_t{0});
  const double in_steps = bias == 0 ? 0 : std::rint(static_cast<double>(bias) / steps.scale);
  const double whole = in_steps - static_cast<double>(v.input.offset * sum);
  if (!(std::abs(whole) <= INT32_MAX)) {
    return unsupported("the bias of channel {} is {}, too many steps of {} for 32 bits", row, bias, steps.scale);
  }
  steps.bias = static_cast<int32_t>(whole);
  return steps;
}

// ModelSlim's W8A8. Where the model is of float16, deq_scale is an int64 with the bits of the float32.
Parts static_parts(const WrittenScheme& scheme, const LayerToWrite& layer) {
  const int64_t rows = layer.rows;
  const DType scale_type = layer.stored == DType::kF16 ? DType::kI64 : DType::kF32;
  const auto scales = [=](LayerValues& v) -> Result<Tensor> {
    CHORAL_TRY(auto tensor, Tensor::allocate(scale_type, {rows}));
    for (int64_t r = 0; r < rows; ++r) {
      CHORAL_TRY(const auto steps, product_steps(v, r));
      if (scale_type == DType::kF32) {
        tensor.as<float>()[r] = steps.scale;
      } else {
        tensor.as<int64_t>()[r] = std::bit_cast<uint32_t>(steps.scale);
      }
    }
    return tensor;
  };
  const auto biases = [=](LayerValues& v) -> Result<Tensor> {
    CHORAL_TRY(auto tensor, Tensor::allocate(DType::kI32, {rows}));
    for (int64_t r = 0; r < rows; ++r) {
      CHORAL_TRY(const auto steps, product_steps(v, r));
      tensor.as<int32_t>()[r] = steps.bias;
    }
    return tensor;
  };
  Parts parts{input_scale_part(),
              input_part("input_offset", [](const kernels::StaticQuant& input) { return static_cast<float>(input.offset); }),
              {"deq_scale", scale_type, {rows}, scales},
              {"quant_bias", DType::kI32, {rows}, biases}};
  for (WrittenPart& part : offset_parts(scheme, layer)) parts.push_back(std::move(part));
  return parts;
}

// 8 · Σ q·scale of each channel, which machines want that split int8 into halves of 4 bits; of a layer that may be divided along
// k, 16 partial sums.
WrittenPart scale_bias_part(const WrittenScheme& scheme, const LayerToWrite& layer) {
  const int64_t parts = layer.row_parallel ? 16 : 1, groups = groups_of(scheme, layer.k);
  const auto sums = [=](LayerValues& v) -> Result<Tensor> {
    CHORAL_TRY(auto tensor, Tensor::allocate(DType::kF32, {layer.rows, parts}));
    const auto q = v.weight.codes.as<int8_t>();
    for (int64_t r = 0; r < layer.rows; ++r) {
      std::vector<double> sum(parts);
      for (int64_t j = 0; j < layer.k; ++j) {
        const float scale = v.weight.scales[r * groups + j * groups / layer.k];
        sum[j * parts / layer.k] += 8.0 * q[r * layer.k + j] * static_cast<double>(scale);
      }
      std::ranges::copy(sum, tensor.as<float>().begin() + r * parts);
    }
    return tensor;
  };
  return {"scale_bias", DType::kF32, {layer.rows, parts}, sums};
}

// ModelSlim's 4 bits with activations of 8: two channels in a byte, 2i in the low nibble; a scale for each channel, here 1, times
// one for each group.
Parts pair_parts(const WrittenScheme& scheme, const LayerToWrite& layer) {
  const int64_t rows = layer.rows, k = layer.k;
  const auto pair = [=](LayerValues& v) -> Result<Tensor> {
    CHORAL_TRY(auto tensor, Tensor::allocate(DType::kI8, {rows / 2, k}));
    const auto codes = v.weight.codes.as<int8_t>();
    for (int64_t i = 0; i < rows / 2; ++i) {
      const int8_t *even = codes.data() + 2 * i * k, *odd = even + k;
      for (int64_t j = 0; j < k; ++j) {
        tensor.as<int8_t>()[i * k + j] = static_cast<int8_t>((even[j] & 15) | (odd[j] & 15) << 4);
      }
    }
    return tensor;
  };
  Parts parts{
      scale_bias_part(scheme, layer), {"weight", DType::kI8, {rows / 2, k}, pair}, constant_part("weight_offset", rows, 1, 0)};
  if (scheme.group_size(k) == 0) {
    parts.push_back(scales_part("weight_scale", rows, 1));
    return parts;
  }
  const int64_t groups = groups_of(scheme, k);
  parts.push_back(constant_part("weight_scale", rows, 1, 1));
  parts.push_back(scales_part("weight_scale_second", rows, groups));
  parts.push_back(constant_part("weight_offset_second", rows, groups, 0));
  return parts;
}

// GGUF: scales stand among the codes.
Parts block_parts(const WrittenScheme& scheme, const LayerToWrite& layer) {
  return {codes_part(scheme.codes, layer.rows, layer.k)};
}

using enum WrittenInput;
constexpr std::array kSchemes{
    WrittenScheme{"w8a8_dynamic", kCompressedTensors, 8, DType::kI8, kInt8Rows, "int-quantized", byte_parts},
    WrittenScheme{"w8a8", kCompressedTensors, 8, DType::kI8, kFixed, "int-quantized", fixed_byte_parts},
    WrittenScheme{"w8a16", kCompressedTensors, 8, DType::kI8, kFloat, "pack-quantized", packed_parts},
    WrittenScheme{"w4a16", kCompressedTensors, 4, DType::kI8, kFloat, "pack-quantized", packed_parts},
    WrittenScheme{"w4a8_dynamic", kCompressedTensors, 4, DType::kI8, kInt8Rows, "int-quantized", byte_parts},
    WrittenScheme{"fp8", kCompressedTensors, 8, DType::kF8E4M3, kFloat, "float-quantized", byte_parts},
    WrittenScheme{"w8a8_dynamic", kModelSlim, 8, DType::kI8, kInt8Rows, "W8A8_DYNAMIC", offset_parts},
    WrittenScheme{"w8a8", kModelSlim, 8, DType::kI8, kFixedWithOffset, "W8A8", static_parts},
    WrittenScheme{"w8a16", kModelSlim, 8, DType::kI8, kFloat, "W8A16", offset_parts},
    WrittenScheme{"w4a16", kModelSlim, 4, DType::kI8, kFloat, "W4A16", packed_parts},
    WrittenScheme{"w4a8_dynamic", kModelSlim, 4, DType::kI8, kInt8Rows, "W4A8_DYNAMIC", pair_parts},
    WrittenScheme{"q8_0", kGguf, 8, DType::kQ8_0, kFloat, "Q8_0", block_parts},
    WrittenScheme{"q4_0", kGguf, 4, DType::kQ4_0, kFloat, "Q4_0", block_parts},
    WrittenScheme{"q4_1", kGguf, 4, DType::kQ4_1, kFloat, "Q4_1", block_parts},
};

}  // namespace

Result<RoundedWeight> WrittenScheme::round(const kernels::Context& ctx, const TensorView& weight,
                                           std::string_view weight_name) const {
  if (codes == DType::kI8) return round_to_int(ctx, weight, bits, weight_name);
  if (codes == DType::kF8E4M3) return round_to_fp8(ctx, weight, weight_name);
  return round_to_blocks(ctx, weight, codes, weight_name);
}

Result<const WrittenScheme*> find_written_scheme(std::string_view scheme, std::string_view format) {
  if (format != kCompressedTensors && format != kModelSlim && format != kGguf) {
    return invalid_argument("--format {}: choose {}, {} or {}", format, kCompressedTensors, kModelSlim, kGguf);
  }
  std::vector<std::string_view> known;
  for (const WrittenScheme& row : kSchemes) {
    if (row.format != format) continue;
    if (row.name == scheme) return &row;
    known.push_back(row.name);
  }
  const bool elsewhere = std::ranges::find(kSchemes, scheme, &WrittenScheme::name) != kSchemes.end();
  return invalid_argument("--scheme {}: {}choose {}", scheme, elsewhere ? fmt::format("{} has no such scheme; ", format) : "",
                          fmt::join(known, ", "));
}

Status check_written(const WrittenScheme& scheme, std::string_view layer, int64_t rows, int64_t k) {
  if (scheme.parts == pair_parts && rows % 2 != 0) {
    return unsupported("{} has {} channels, but {} keeps two in a byte; use --format {}", layer, rows, scheme.format,
                       kCompressedTensors);
  }
  if (const int64_t block = facts(scheme.codes).block_elements; k % block != 0) {
    return unsupported("{} has {} columns, but a block of {} has {}; let it stay float with --ignore", layer, k, scheme.name,
                       block);
  }
  return {};
}

}  // namespace choral::quant
