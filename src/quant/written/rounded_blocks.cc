#include <algorithm>
#include <cmath>

#include "base/first_found.h"
#include "kernels/quant/dequantise.h"
#include "kernels/quant/quantise_blocks.h"
#include "quant/rounded_weight.h"

namespace choral::quant {

Result<RoundedWeight> round_to_blocks(const kernels::Context& ctx, const TensorView& weight, DType type, std::string_view name) {
  // The largest number whose scale is a finite float16 in every type.
  constexpr float kLargest = 60000.0f;
  const int64_t rows = weight.rows(), k = weight.cols();
  RoundedWeight out;
  CHORAL_TRY(out.codes, Tensor::allocate(type, {rows, k}));
  const Arena::Mark mark(ctx.scratch);
  const MatrixView<float> floats(ctx.scratch.make<float>(ctx.pool.size() * k).data(), ctx.pool.size(), k);
  FirstFound bad;
  ctx.pool.parallel_for(rows, 16, [&](int64_t begin, int64_t end, int thread) {
    float* x = floats.row(thread);
    for (int64_t r = begin; r < end; ++r) {
      kernels::dequantise_row(weight.dtype, weight.row(r), k, x);
      if (!std::all_of(x, x + k, [](float v) { return std::abs(v) <= kLargest; })) {
        bad.found(r);
        continue;
      }
      kernels::quantise_row(type, x, k, out.codes.data() + r * row_bytes(type, k));
    }
  });
  if (const auto row = bad.index()) {
    return corrupt("{}: row {} holds a NaN, an infinity or a number beyond {}", name, *row, kLargest);
  }
  return out;
}

}  // namespace choral::quant
