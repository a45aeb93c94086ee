#include "quant/shards.h"

#include <cmath>
#include <cstring>

#include "base/float8.h"
#include "kernels/quant/dequantise.h"

namespace choral::quant {
namespace {

template <class Integer>
std::vector<int64_t> read_as(const TensorView& view) {
  std::vector<int64_t> values(view.shape.elements());
  for (size_t i = 0; i < values.size(); ++i) {
    Integer value;
    std::memcpy(&value, view.data + i * sizeof value, sizeof value);
    values[i] = value;
  }
  return values;
}

}  // namespace

void add_weight(const LinearShape& shape, StoredAs stored_as, ParameterSet& parameters) {
  for_each_shard(shape, parameters.add("weight", stored_as), ".weight", [&](int64_t out) { return Shape{out, shape.in}; });
}

Result<std::vector<float>> read_floats(const Shard& shard) {
  const TensorView& view = shard.tensor.view;
  std::vector<float> floats(static_cast<size_t>(view.shape.elements()));
  if (view.dtype == DType::kF8E8M0 || view.dtype == DType::kU8) {
    for (size_t i = 0; i < floats.size(); ++i) floats[i] = to_float(Float8E8M0{std::to_integer<uint8_t>(view.data[i])});
  } else {
    kernels::dequantise_row(view.dtype, view.data, std::ssize(floats), floats.data());
  }
  for (const float v : floats) {
    if (!std::isfinite(v)) return corrupt("{} holds a NaN or an infinity", shard.name);
  }
  return floats;
}

std::vector<int64_t> read_integers(const Shard& shard) {
  const TensorView& view = shard.tensor.view;
  if (view.dtype == DType::kI64) return read_as<int64_t>(view);
  return view.dtype == DType::kI32 ? read_as<int32_t>(view) : read_as<int8_t>(view);
}

}  // namespace choral::quant
