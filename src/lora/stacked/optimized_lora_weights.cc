#include "lora/stacked/optimized_lora_weights.h"

#include <algorithm>
#include <vector>

#include "base/checked_math.h"
#include "base/float16.h"
#include "kernels/quant/dequantise.h"

namespace choral::lora {
namespace {

void store(const TensorView& from, DType dtype, std::byte* to) {
  const int64_t cols = from.cols();
  std::vector<float> row(static_cast<size_t>(cols));
  for (int64_t i = 0; i < from.rows(); ++i) {
    kernels::dequantise_row(from.dtype, from.row(i), cols, row.data());
    std::byte* out = to + i * row_bytes(dtype, cols);
    if (dtype == DType::kF32) std::copy_n(row.data(), cols, reinterpret_cast<float*>(out));
    if (dtype == DType::kF16) std::transform(row.begin(), row.end(), reinterpret_cast<Float16*>(out), to_float16);
    if (dtype == DType::kBF16) std::transform(row.begin(), row.end(), reinterpret_cast<BFloat16*>(out), to_bfloat16);
  }
}

}  // namespace

Result<OptimizedLoRAWeights> OptimizedLoRAWeights::create(const LoRALayerWeights& layer, DType dtype) {
  if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16) {
    return invalid_argument("'{}': weights are copied as float32, float16 or bfloat16, not {}", layer.module_name,
                            dtype_name(dtype));
  }
  OptimizedLoRAWeights out;
  out.scaling_ = layer.scaling;
  out.a_ = {nullptr, dtype, layer.lora_a.view.shape, kCpuDevice};
  out.b_ = {nullptr, dtype, layer.lora_b.view.shape, kCpuDevice};
  const int64_t b_offset = round_up(out.a_.size_bytes(), kCacheLineBytes);
  CHORAL_TRY(out.memory_, AlignedBuffer::allocate(static_cast<size_t>(b_offset + out.b_.size_bytes())));
  store(layer.lora_a.view, dtype, out.memory_.data());
  store(layer.lora_b.view, dtype, out.memory_.data() + b_offset);
  out.a_.data = out.memory_.data();
  out.b_.data = out.memory_.data() + b_offset;
  for (const TensorView& view : {out.a_, out.b_}) {
    if (const auto at = first_non_finite(view)) {
      return invalid_argument("'{}': element {} does not fit into {}", layer.module_name, *at, dtype_name(dtype));
    }
  }
  return out;
}

}  // namespace choral::lora
