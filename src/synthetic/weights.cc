#include "synthetic/weights.h"

#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "kernels/quant/block_scales.h"
#include "synthetic/random.h"

namespace choral::synthetic {
namespace {

void fill_blocks(Tensor& tensor, Random& random, float bound) {
  const auto& f = facts(tensor.dtype());
  const float unit = bound / kernels::block_reach(tensor.dtype());
  const auto bytes = tensor.as<uint8_t>();
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const uint64_t r = random.next();
    std::memcpy(bytes.data() + i, &r, 8);
  }
  for (size_t block = 0; block < bytes.size(); block += static_cast<size_t>(f.block_bytes)) {
    // Of either sign, since quants that are 0 or more would give every row the same direction, and a router one choice for all.
    const float d = random.next() >> 63 == 0 ? unit : -unit;
    kernels::set_block_scales(tensor.dtype(), reinterpret_cast<std::byte*>(bytes.data()) + block, d, 0);
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
