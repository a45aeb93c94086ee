#include "tools/quantize/gguf_pieces.h"

#include <cmath>
#include <cstring>

#include "kernels/quant/dequantise.h"
#include "quant/rounded_weight.h"
#include "quant/shards.h"

namespace choral::tools {
namespace {

// Rows of equally many elements; those of a vector are single ones.
TensorView as_matrix(TensorView view) {
  const int64_t rows = view.shape.rank() == 0 ? 1 : view.shape[0];
  view.shape = {rows, rows == 0 ? 0 : view.shape.elements() / rows};
  return view;
}

Result<Tensor> with_rows(const TensorView& view, const std::vector<int32_t>& rows) {
  CHORAL_TRY(Tensor out, Tensor::allocate(view.dtype, {std::ssize(rows), view.cols()}));
  const auto size = static_cast<size_t>(row_bytes(view.dtype, view.cols()));
  for (size_t i = 0; i < rows.size(); ++i) std::memcpy(out.data() + i * size, view.row(rows[i]), size);
  return out;
}

Result<Tensor> with_columns(const TensorView& view, const std::vector<int32_t>& columns) {
  CHORAL_TRY(Tensor out, Tensor::allocate(view.dtype, {view.rows(), std::ssize(columns)}));
  const int64_t size = row_bytes(view.dtype, 1);
  std::byte* to = out.data();
  for (int64_t r = 0; r < view.rows(); ++r) {
    for (const int32_t column : columns) {
      std::memcpy(to, view.row(r) + column * size, static_cast<size_t>(size));
      to += size;
    }
  }
  return out;
}

// Each `height` rows as a matrix that is turned round.
Result<Tensor> turned(const TensorView& view, int64_t height) {
  CHORAL_TRY(Tensor out, Tensor::allocate(view.dtype, {view.rows() / height * view.cols(), height}));
  const int64_t size = row_bytes(view.dtype, 1);
  std::byte* to = out.data();
  for (int64_t begin = 0; begin < view.rows(); begin += height) {
    for (int64_t c = 0; c < view.cols(); ++c) {
      for (int64_t r = begin; r < begin + height; ++r) {
        std::memcpy(to, view.row(r) + c * size, static_cast<size_t>(size));
        to += size;
      }
    }
  }
  return out;
}

Result<Tensor> as_floats(const TensorView& view, const GgufTensorPlan& plan) {
  CHORAL_TRY(Tensor out, Tensor::allocate(DType::kF32, {view.rows(), view.cols()}));
  const std::span<float> values = out.as<float>();
  for (int64_t r = 0; r < view.rows(); ++r) {
    kernels::dequantise_row(view.dtype, view.row(r), view.cols(), values.data() + r * view.cols());
  }
  for (float& value : values) value = plan.is_decay ? -std::exp(value) : value + plan.added;
  return out;
}

}  // namespace

Result<Tensor> make_gguf_piece(const platform::Context& ctx, const GgufTensorPlan& plan, const GgufPiece& piece,
                               const io::SourceTensor& source) {
  Tensor memory, ordered;
  CHORAL_TRY(TensorView view, quant::as_rows(ctx, source, memory));
  view = as_matrix(view);
  const auto replace = [&](Result<Tensor> made) -> Status {
    CHORAL_TRY(Tensor next, std::move(made));
    ordered = std::move(next);
    view = ordered.view();
    return {};
  };
  if (!piece.rows.empty()) CHORAL_RETURN_IF_ERROR(replace(with_rows(view, piece.rows)));
  if (!plan.columns.empty()) CHORAL_RETURN_IF_ERROR(replace(with_columns(view, plan.columns)));
  if (plan.turned > 0) CHORAL_RETURN_IF_ERROR(replace(turned(view, plan.turned)));
  const DType type = plan.tensor.dtype;
  if (facts(type).is_block) {
    CHORAL_TRY(auto rounded, quant::round_to_blocks(ctx.kernel, view, type, piece.source));
    return std::move(rounded.codes);
  }
  if (type == DType::kF32) return as_floats(view, plan);
  CHORAL_TRY(Tensor copy, Tensor::allocate(type, view.shape));
  std::memcpy(copy.data(), view.data, static_cast<size_t>(copy.size_bytes()));
  return copy;
}

}  // namespace choral::tools
