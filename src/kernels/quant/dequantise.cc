#include "kernels/quant/dequantise.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/float16.h"
#include "kernels/quant/quant_panels.h"
#include "kernels/quant/stored_types.h"

namespace choral::kernels {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian and read in place");

template <class T, class Convert>
void each_element(const std::byte* row, int64_t elements, float* out, Convert convert) {
  for (int64_t i = 0; i < elements; ++i) {
    T value;
    std::memcpy(&value, row + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    out[i] = convert(value);
  }
}

// By the integers and scales that products read (quant_panels_source.h).
void each_block(DType type, const std::byte* row, int64_t elements, float* out) {
  const QuantForm form = quant_form(type);
  const int64_t blocks = elements / kQuantBlock, at_once = facts(type).block_elements / kQuantBlock;
  CHORAL_DCHECK(elements % facts(type).block_elements == 0, "a row is whole blocks");
  const int half = kQuantBlock / form.sub_blocks();
  QuantSourceGroup group{};
  for (int64_t first = 0; first < blocks; first += at_once) {
    read_quant_source(type, row, first, static_cast<int>(at_once), group);
    for (int b = 0; b < at_once; ++b) {
      const QuantLaneBlock block = lane_block(form, group, b);
      for (int i = 0; i < kQuantBlock; ++i) {
        const float product = block.scale[i / half] * static_cast<float>(block.n[i] - form.zero());
        *out++ = form.has_min() ? product + block.min[i / half] : product;  // a zero keeps its sign
      }
    }
  }
}

}  // namespace

std::span<const DType> stored_types() {
  static constexpr std::array kTypes{
      DType::kF32,     DType::kBF16,   DType::kF16,   DType::kF64,     DType::kQ8_0,  DType::kQ4_0,  DType::kQ4_1,
      DType::kQ5_0,    DType::kQ5_1,   DType::kQ4_K,  DType::kQ5_K,    DType::kQ6_K,  DType::kQ2_K,  DType::kQ3_K,
      DType::kIQ4_NL,  DType::kIQ4_XS, DType::kTQ1_0, DType::kTQ2_0,   DType::kMXFP4, DType::kIQ1_S, DType::kIQ1_M,
      DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S};
  return kTypes;
}

bool can_dequantise(DType type) {
  const auto types = stored_types();
  return std::find(types.begin(), types.end(), type) != types.end();
}

void dequantise_row(DType type, const std::byte* row, int64_t elements, float* out) {
  switch (type) {
    case DType::kF32: std::memcpy(out, row, static_cast<size_t>(elements) * sizeof(float)); return;
    case DType::kF16: return each_element<uint16_t>(row, elements, out, [](uint16_t x) { return to_float(Float16{x}); });
    case DType::kBF16: return each_element<uint16_t>(row, elements, out, [](uint16_t x) { return to_float(BFloat16{x}); });
    case DType::kF64: return each_element<double>(row, elements, out, [](double x) { return static_cast<float>(x); });
    default: break;
  }
  CHORAL_CHECK(has_quant_form(type), "a type that cannot be dequantised; ask can_dequantise first");
  each_block(type, row, elements, out);
}

}  // namespace choral::kernels
