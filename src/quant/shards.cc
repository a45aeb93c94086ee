#include "quant/shards.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checked_math.h"
#include "base/float8.h"
#include "kernels/quant/dequantise.h"
#include "quant/joined_rows.h"

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

// to [rows, cols] of from [cols, rows], in squares that a cache holds.
template <class Element>
void transpose(const platform::Context& ctx, const std::byte* from, int64_t rows, int64_t cols, std::byte* to) {
  constexpr int64_t kSide = 32;
  ctx.kernel.pool.parallel_for(ceil_div(rows, kSide), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t col = 0; col < cols; col += kSide) {
      for (int64_t r = begin * kSide; r < std::min(end * kSide, rows); ++r) {
        for (int64_t c = col; c < std::min(col + kSide, cols); ++c) {
          std::memcpy(to + (r * cols + c) * sizeof(Element), from + (c * rows + r) * sizeof(Element), sizeof(Element));
        }
      }
    }
  });
}

}  // namespace

void add_weight(const LinearShape& shape, StoredAs stored_as, ParameterSet& parameters) {
  for_each_shard(shape, parameters.add("weight", stored_as), ".weight", [&](int64_t out) { return Shape{out, shape.in}; });
}

Result<TensorView> as_rows(const platform::Context& ctx, const io::SourceTensor& weight, Tensor& memory) {
  if (!weight.parts.empty()) {
    CHORAL_TRY(memory, Tensor::allocate(weight.view.dtype, weight.view.shape));
    const int64_t turns = turns_of(weight), turn_bytes = memory.size_bytes() / turns;
    ctx.kernel.pool.parallel_for(turns, ceil_div(turns, 64), [&](int64_t begin, int64_t end, int) {
      join_turns(weight, begin, end, memory.data() + begin * turn_bytes);
    });
    return memory.view();
  }
  if (!weight.transposed) return weight.view;
  const int64_t rows = weight.view.rows(), cols = weight.view.cols(), element_bytes = row_bytes(weight.view.dtype, 1);
  CHORAL_CHECK(element_bytes == 2 || element_bytes == 4, "what is no float of two or four bytes is stored by rows");
  CHORAL_TRY(memory, Tensor::allocate(weight.view.dtype, {rows, cols}));
  const auto turn = element_bytes == 2 ? transpose<uint16_t> : transpose<uint32_t>;
  turn(ctx, weight.view.data, rows, cols, memory.data());
  return memory.view();
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
