#include "quant/written/written_scheme.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked_math.h"
#include "quant/integers/bit_fields.h"
#include "quant/quant_config.h"

namespace choral::quant {
namespace {

using Parts = std::vector<WrittenPart>;

constexpr std::string_view kCompressedTensors = "compressed-tensors", kModelSlim = "modelslim";

// The codes as they are.
WrittenPart codes_part(DType dtype, int64_t rows, int64_t k) {
  return {"weight", dtype, {rows, k}, [](RoundedWeight& w) -> Result<Tensor> { return std::move(w.codes); }};
}

WrittenPart scales_part(std::string name, int64_t rows, int64_t groups) {
  return {std::move(name), DType::kF32, {rows, groups}, [=](RoundedWeight& w) -> Result<Tensor> {
            CHORAL_TRY(auto tensor, Tensor::allocate(DType::kF32, {rows, groups}));
            std::memcpy(tensor.data(), w.scales.data(), w.scales.size() * sizeof(float));
            return tensor;
          }};
}

// Of one value.
WrittenPart constant_part(std::string name, int64_t rows, int64_t cols, float value) {
  return {std::move(name), DType::kF32, {rows, cols}, [=](RoundedWeight&) -> Result<Tensor> {
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
Parts byte_parts(const WrittenScheme& scheme, int64_t rows, int64_t k) {
  return {scales_part("weight_scale", rows, groups_of(scheme, k)),
          codes_part(scheme.is_float ? DType::kF8E4M3 : DType::kI8, rows, k)};
}

// pack-quantized: 32 bits of codes in a word, along k.
Parts packed_parts(const WrittenScheme& scheme, int64_t rows, int64_t k) {
  const int bits = scheme.bits;
  const int64_t words = field_words(k, bits, FieldLayout::kDense);
  const auto pack = [=](RoundedWeight& w) -> Result<Tensor> {
    CHORAL_TRY(auto tensor, Tensor::allocate(DType::kI32, {rows, words}));
    for (int64_t r = 0; r < rows; ++r) {
      write_fields(w.codes.as<int8_t>().data() + r * k, k, bits, tensor.as<uint32_t>().data() + r * words);
    }
    return tensor;
  };
  const auto shape = [=](RoundedWeight&) -> Result<Tensor> {
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
Parts offset_parts(const WrittenScheme&, int64_t rows, int64_t k) {
  return {scales_part("weight_scale", rows, 1), constant_part("weight_offset", rows, 1, 0), codes_part(DType::kI8, rows, k)};
}

// ModelSlim's 4 bits with activations of 8: two channels in a byte, 2i in the low nibble; a scale for each channel, here 1, times
// one for each group.
Parts pair_parts(const WrittenScheme& scheme, int64_t rows, int64_t k) {
  const auto pair = [=](RoundedWeight& w) -> Result<Tensor> {
    CHORAL_TRY(auto tensor, Tensor::allocate(DType::kI8, {rows / 2, k}));
    const auto codes = w.codes.as<int8_t>();
    for (int64_t i = 0; i < rows / 2; ++i) {
      const int8_t *even = codes.data() + 2 * i * k, *odd = even + k;
      for (int64_t j = 0; j < k; ++j) {
        tensor.as<int8_t>()[i * k + j] = static_cast<int8_t>((even[j] & 15) | (odd[j] & 15) << 4);
      }
    }
    return tensor;
  };
  Parts parts{{"weight", DType::kI8, {rows / 2, k}, pair}, constant_part("weight_offset", rows, 1, 0)};
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

constexpr std::array kSchemes{
    WrittenScheme{"w8a8_dynamic", kCompressedTensors, 8, false, true, "int-quantized", byte_parts},
    WrittenScheme{"w8a16", kCompressedTensors, 8, false, false, "pack-quantized", packed_parts},
    WrittenScheme{"w4a16", kCompressedTensors, 4, false, false, "pack-quantized", packed_parts},
    WrittenScheme{"w4a8_dynamic", kCompressedTensors, 4, false, true, "int-quantized", byte_parts},
    WrittenScheme{"fp8", kCompressedTensors, 8, true, false, "float-quantized", byte_parts},
    WrittenScheme{"w8a8_dynamic", kModelSlim, 8, false, true, "W8A8_DYNAMIC", offset_parts},
    WrittenScheme{"w8a16", kModelSlim, 8, false, false, "W8A16", offset_parts},
    WrittenScheme{"w4a16", kModelSlim, 4, false, false, "W4A16", packed_parts},
    WrittenScheme{"w4a8_dynamic", kModelSlim, 4, false, true, "W4A8_DYNAMIC", pair_parts},
};

}  // namespace

Result<RoundedWeight> WrittenScheme::round(const kernels::Context& ctx, const TensorView& weight,
                                           std::string_view weight_name) const {
  return is_float ? round_to_fp8(ctx, weight, weight_name) : round_to_int(ctx, weight, bits, weight_name);
}

Result<const WrittenScheme*> find_written_scheme(std::string_view scheme, std::string_view format) {
  if (format != kCompressedTensors && format != kModelSlim) {
    return invalid_argument("--format {}: choose {} or {}", format, kCompressedTensors, kModelSlim);
  }
  std::vector<std::string_view> known;
  for (const WrittenScheme& row : kSchemes) {
    if (row.format != format) continue;
    if (row.name == scheme) return &row;
    known.push_back(row.name);
  }
  if (scheme == "w8a8") {
    return unsupported(
        "--scheme w8a8: scales of activations that stand in the checkpoint come from running the model over sample texts, which "
        "is not done here; w8a8_dynamic finds them for each row as it comes");
  }
  const auto all = in_flight_names();
  const bool elsewhere = std::find(all.begin(), all.end(), scheme) != all.end();
  return invalid_argument("--scheme {}: {}choose {}", scheme, elsewhere ? fmt::format("{} has no such scheme; ", format) : "",
                          fmt::join(known, ", "));
}

Status check_written(const WrittenScheme& scheme, std::string_view layer, int64_t rows, int64_t k) {
  if (scheme.parts == pair_parts && rows % 2 != 0) {
    return unsupported("{} has {} channels, but {} keeps two in a byte; use --format {}", layer, rows, scheme.format,
                       kCompressedTensors);
  }
  constexpr int64_t kBlock = 32;
  if (!scheme.is_float && k % kBlock != 0) {
    return unsupported("{} has {} columns, but integers are multiplied {} columns at a time; let it stay float with --ignore",
                       layer, k, kBlock);
  }
  return {};
}

}  // namespace choral::quant
