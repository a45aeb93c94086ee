#include "lora/stacked/optimized_lora_weights.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/checked_math.h"
#include "base/float16.h"
#include "lora/peft/adapter_tensor.h"

namespace choral::lora {
namespace {

void store(std::span<const float> values, DType dtype, std::byte* to) {
  if (dtype == DType::kF32) std::memcpy(to, values.data(), values.size_bytes());
  if (dtype == DType::kF16) std::transform(values.begin(), values.end(), reinterpret_cast<Float16*>(to), to_float16);
  if (dtype == DType::kBF16) std::transform(values.begin(), values.end(), reinterpret_cast<BFloat16*>(to), to_bfloat16);
}

// Calls visit(term's module, factor, slice index) for each slice of the voice's terms that has some of `columns`.
template <class Visit>
void for_each_slice(const PackedVoice& voice, int target, LoRAColumns columns, Visit visit) {
  for (const auto& [adapter, factor] : voice) {
    const PackedModule* module = adapter->module(target);
    if (module == nullptr || !module->delta) continue;
    const kernels::LoRAMatrix& matrix = *module->delta;
    for (size_t s = 0; s < matrix.slice_count(); ++s) {
      const auto& slice = matrix.slice(s);
      if (slice.out_begin < columns.begin + columns.count && columns.begin < slice.out_end) visit(*module, factor, s);
    }
  }
}

}  // namespace

int64_t OptimizedLoRAWeights::voice_rank(const PackedVoice& voice, int target, LoRAColumns columns) {
  int64_t rank = 0;
  for_each_slice(voice, target, columns, [&](const auto& module, float, size_t s) { rank += module.delta->slice(s).rank; });
  return rank;
}

Result<OptimizedLoRAWeights> OptimizedLoRAWeights::create(const PackedVoice& voice, int target, LoRAColumns columns, int64_t in,
                                                          int64_t rank, DType dtype) {
  OptimizedLoRAWeights out;
  out.a_ = {nullptr, dtype, {rank, in}, kCpuDevice};
  out.b_ = {nullptr, dtype, {columns.count, rank}, kCpuDevice};
  const int64_t b_offset = round_up(out.a_.size_bytes(), int64_t{kCacheLineBytes});
  CHORAL_TRY(out.memory_, AlignedBuffer::allocate(b_offset + out.b_.size_bytes()));
  out.a_.data = out.memory_.data();
  out.b_.data = out.memory_.data() + b_offset;
  std::vector<float> row(in), column;
  int64_t at = 0;  // the slice's first rank here
  for_each_slice(voice, target, columns, [&](const auto& module, float factor, size_t s) {
    const kernels::LoRAMatrix& matrix = *module.delta;
    // An embedding's middles are looked up as they are.
    const float of_lookup = module.token_middles.empty() ? 1.0F : factor * module.token_scale;
    const auto& slice = matrix.slice(s);
    for (int64_t j = 0; j < slice.rank; ++j) {
      matrix.read_a(slice.rank_begin + j, row);
      for (float& value : row) value *= factor;
      store(row, dtype, out.memory_.data() + row_bytes(dtype, (at + j) * in));
    }
    column.resize(slice.rank);
    const int64_t end = std::min(columns.begin + columns.count, slice.out_end);
    for (int64_t c = std::max(columns.begin, slice.out_begin); c < end; ++c) {
      matrix.read_b(s, c, column);
      const float of_column = matrix.output_factor().empty() ? 1.0F : matrix.output_factor()[c];
      for (float& value : column) value *= of_column * of_lookup;
      store(column, dtype, out.memory_.data() + b_offset + row_bytes(dtype, (c - columns.begin) * rank + at));
    }
    at += slice.rank;
  });
  for (const TensorView& view : {out.a_, out.b_}) {
    if (const auto element = first_non_finite(view)) {
      return invalid_argument(
          "an adapter's element {} does not fit into {}, the type of the device's stacks; choose another "
          "--lora-dtype",
          *element, dtype_name(dtype));
    }
  }
  return out;
}

}  // namespace choral::lora
