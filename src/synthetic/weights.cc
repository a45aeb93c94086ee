#include "synthetic/weights.h"

#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "synthetic/random.h"

namespace choral::synthetic {
namespace {

// Offsets of the fp16 scale fields inside one block.
struct ScaleFields {
  int first = -1, second = -1;
};

ScaleFields scale_fields(DType format) {
  switch (format) {
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ5_0: return {0, -1};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K: return {0, 2};
    case DType::kQ6_K: return {208, -1};
    case DType::kQ2_K: return {80, 82};
    case DType::kQ3_K: return {108, -1};
    case DType::kIQ4_NL:
    case DType::kIQ4_XS: return {0, -1};
    case DType::kTQ1_0: return {52, -1};
    case DType::kTQ2_0: return {64, -1};
    default: return {};
  }
}

// The largest quant times the largest inner scale: what one unit of the block's scale can reach.
float largest_quant(DType format) {
  switch (format) {
    case DType::kQ8_0: return 127;
    case DType::kQ4_K: return 15 * 63;
    case DType::kQ5_K: return 31 * 63;
    case DType::kQ6_K: return 32 * 127;
    case DType::kQ5_0:
    case DType::kQ5_1: return 31;
    case DType::kQ2_K: return 3 * 15;
    case DType::kQ3_K: return 4 * 32;
    case DType::kIQ4_NL: return 127;
    case DType::kIQ4_XS: return 127 * 32;
    case DType::kTQ1_0:
    case DType::kTQ2_0: return 2;
    case DType::kMXFP4: return 6;
    default: return 15;
  }
}

void fill_blocks(Tensor& tensor, Random& random, float bound) {
  const auto& f = facts(tensor.dtype());
  const auto fields = scale_fields(tensor.dtype());
  // Of either sign, since quants that are 0 or more would give every row the same direction, and a router one choice for all.
  const Float16 scales[] = {to_float16(bound / largest_quant(tensor.dtype())),
                            to_float16(-bound / largest_quant(tensor.dtype()))};
  const Float16 zero = to_float16(0.0f);
  const auto bytes = tensor.as<uint8_t>();
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const uint64_t r = random.next();
    std::memcpy(bytes.data() + i, &r, 8);
  }
  const auto exponent = static_cast<uint8_t>(127 + std::ilogb(bound / largest_quant(tensor.dtype())));  // of MXFP4
  for (size_t block = 0; block < bytes.size(); block += static_cast<size_t>(f.block_bytes)) {
    if (tensor.dtype() == DType::kMXFP4) bytes[block] = exponent;
    const Float16 scale = scales[random.next() >> 63];
    if (fields.first >= 0) std::memcpy(bytes.data() + block + fields.first, &scale, sizeof scale);
    if (fields.second >= 0) std::memcpy(bytes.data() + block + fields.second, &zero, sizeof zero);
  }
}

void fill_floats(Tensor& tensor, Random& random, float bound) {
  for (auto& x : tensor.as<float>()) x = random.uniform(bound);
}

}  // namespace

Result<Tensor> Weights::make(DType format, const Shape& shape) {
  CHORAL_TRY(auto tensor, Tensor::allocate(format, shape));
  if (shape.rank() == 1) {
    for (auto& x : tensor.as<float>()) x = 1.0f;
    return tensor;
  }
  Random random(seed_ + static_cast<uint64_t>(shape.elements()));
  const float bound = 1.0f / std::sqrt(static_cast<float>(shape[1]));
  switch (format) {
    case DType::kF32: fill_floats(tensor, random, bound); break;
    case DType::kBF16:
      for (auto& x : tensor.as<BFloat16>()) x = to_bfloat16(random.uniform(bound));
      break;
    case DType::kF16:
      for (auto& x : tensor.as<Float16>()) x = to_float16(random.uniform(bound));
      break;
    default: fill_blocks(tensor, random, bound);
  }
  return tensor;
}

Result<io::SourceTensor> Weights::take_any_of(const std::string&, std::span<const Shape> shapes) {
  const Shape& shape = shapes.front();
  const bool matrix = shape.rank() == 2;
  const auto& f = facts(format_);
  const DType format = !matrix ? DType::kF32 : shape[1] % f.block_elements == 0 ? format_ : DType::kBF16;
  const std::pair<int64_t, int64_t> size =
      matrix ? std::pair{shape[0], shape[1]} : std::pair<int64_t, int64_t>{0, shape.elements()};
  auto found = by_size_.find(size);
  if (found == by_size_.end()) {
    CHORAL_TRY(auto tensor, make(format, shape));
    found = by_size_.emplace(size, std::move(tensor)).first;
  }
  return io::SourceTensor{found->second.view(), {}};
}

}  // namespace choral::synthetic
