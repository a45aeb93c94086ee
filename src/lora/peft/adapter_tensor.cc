#include "lora/peft/adapter_tensor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/quant/dequantise.h"

namespace choral::lora {
namespace {

// The index of the first element whose bits under `exponent` are all set. The data may start at any address.
template <class Bits>
std::optional<int64_t> first_all_set(const TensorView& tensor, Bits exponent) {
  const int64_t count = tensor.shape.elements();
  const auto all_set = [&](int64_t i) -> Bits {
    Bits bits;
    std::memcpy(&bits, tensor.data + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    return (bits & exponent) == exponent;
  };
  constexpr int64_t kBlock = 1024;  // `found` is as wide as the values, and no loop's end unknown: the inner one is vectorised
  int64_t at = 0;
  for (; at + kBlock <= count; at += kBlock) {
    Bits found = 0;
    for (int64_t i = 0; i < kBlock; ++i) found |= all_set(at + i);
    if (found != 0) break;
  }
  for (; at < count; ++at) {
    if (all_set(at) != 0) return at;
  }
  return std::nullopt;
}

}  // namespace

AdapterTensor::AdapterTensor(Tensor tensor) {
  auto kept = std::make_shared<Tensor>(std::move(tensor));
  view = kept->view();
  owner = std::move(kept);
}

AdapterTensor AdapterTensor::rows(int64_t begin, int64_t count) const {
  CHORAL_CHECK(view.shape.rank() >= 1 && begin >= 0 && count >= 0 && begin + count <= view.shape[0], "rows outside a tensor");
  TensorView part = view;
  if (view.shape.rank() == 1) {
    part.shape = Shape{count};
    part.data = view.data + row_bytes(view.dtype, begin);
  } else {
    CHORAL_CHECK(view.shape.rank() == 2, "rows of a matrix");
    part.shape = Shape{count, view.shape[1]};
    part.data = view.row(begin);
  }
  return {part, owner};
}

std::optional<int64_t> first_non_finite(const TensorView& tensor) {
  switch (tensor.dtype) {
    case DType::kF32: return first_all_set<uint32_t>(tensor, 0x7F800000u);
    case DType::kF16: return first_all_set<uint16_t>(tensor, 0x7C00u);
    case DType::kBF16: return first_all_set<uint16_t>(tensor, 0x7F80u);
    case DType::kQ8_0: {
      const auto& f = facts(tensor.dtype);
      for (int64_t i = 0; i < tensor.size_bytes() / f.block_bytes; ++i) {
        const TensorView scale{tensor.data + i * f.block_bytes, DType::kF16, Shape{1}, tensor.device};
        if (first_non_finite(scale)) return i * f.block_elements;
      }
      return std::nullopt;
    }
    default: CHORAL_CHECK(false, "adapters are float tensors by now");
  }
  return std::nullopt;
}

bool is_all_zero(const TensorView& tensor) {
  if (facts(tensor.dtype).is_block) {
    std::vector<float> row(tensor.cols());
    for (int64_t i = 0; i < tensor.rows(); ++i) {
      kernels::dequantise_row(tensor.dtype, tensor.row(i), tensor.cols(), row.data());
      if (std::any_of(row.begin(), row.end(), [](float value) { return value != 0; })) return false;
    }
    return true;
  }
  const int64_t width = facts(tensor.dtype).block_bytes;  // a float's top byte holds the sign: -0 is zero too
  const int64_t bytes = tensor.size_bytes();
  for (int64_t i = 0; i < bytes; ++i) {
    auto byte = std::to_integer<uint8_t>(tensor.data[i]);
    if (i % width == width - 1) byte &= 0x7F;
    if (byte != 0) return false;
  }
  return true;
}

double length_of(std::span<const float> row) {
  constexpr size_t kChains = 8;
  std::array<double, kChains> squares{};  // sums of their own: a single one would wait for itself at every step
  size_t k = 0;
  for (; k + kChains <= row.size(); k += kChains) {
    for (size_t c = 0; c < kChains; ++c) squares[c] += static_cast<double>(row[k + c]) * static_cast<double>(row[k + c]);
  }
  for (size_t c = 0; k < row.size(); ++k, ++c) squares[c] += static_cast<double>(row[k]) * static_cast<double>(row[k]);
  for (size_t step = kChains / 2; step > 0; step /= 2) {
    for (size_t c = 0; c < step; ++c) squares[c] += squares[c + step];
  }
  return std::sqrt(squares[0]);
}

Result<Tensor> to_float_tensor(const TensorView& tensor) {
  CHORAL_CHECK(kernels::can_dequantise(tensor.dtype), "a type without values");
  CHORAL_TRY(Tensor out, Tensor::allocate(DType::kF32, tensor.shape));
  float* values = out.as<float>().data();
  for (int64_t i = 0; i < tensor.rows(); ++i) {
    kernels::dequantise_row(tensor.dtype, tensor.row(i), tensor.cols(), values + i * tensor.cols());
  }
  return out;
}

}  // namespace choral::lora
