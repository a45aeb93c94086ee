#include "quant/weight_source.h"

#include "base/float16.h"
#include "kernels/quant/dequantise.h"
#include "quant/joined_rows.h"

namespace choral::quant {
namespace {

float rounded(float x, const WeightRequest& request) {
  if (request.as_stored) return x;
  if (request.convert_to == DType::kBF16) return to_float(to_bfloat16(x));
  if (request.convert_to == DType::kF16) return to_float(to_float16(x));
  return x;
}

}  // namespace

void read_vector(const io::SourceTensor& tensor, const WeightRequest& request, std::span<float> out, float plus) {
  const auto elements = std::ssize(out);
  std::vector<float> stored(out.size());
  std::vector<std::byte> joined;
  const std::byte* data = tensor.view.data;
  if (!tensor.parts.empty()) {
    joined.resize(static_cast<size_t>(tensor.view.size_bytes()));
    join_turns(tensor, 0, turns_of(tensor), joined.data());
    data = joined.data();
  }
  kernels::dequantise_row(tensor.view.dtype, data, elements, stored.data());
  for (int64_t i = 0; i < elements; ++i) {
    const float value = stored[tensor.row_order.empty() ? i : tensor.row_order[i]];
    const bool holds_sum = tensor.added == plus && (plus == 0 || request.as_stored);  // there and back would round
    out[i] = holds_sum ? rounded(value, request) : rounded(value - tensor.added, request) + plus;
  }
}

Status WeightSource::read_vector(const std::string& name, std::span<float> out, float plus, int64_t rows) {
  CHORAL_TRY(const auto tensor, take(name, rows == 1 ? Shape{std::ssize(out)} : Shape{rows, std::ssize(out) / rows}));
  const auto& f = facts(tensor.view.dtype);
  if (!f.is_floating && !f.is_block) return unsupported("tensor {} is stored as {}, a float type is wanted", name, f.name);
  quant::read_vector(tensor, request(), out, plus);
  release(name);
  return {};
}

}  // namespace choral::quant
