#include "layers/rotary_embedding.h"

#include "kernels/ref/rotary.h"

namespace choral::layers {

RotaryEmbedding::RotaryEmbedding(Builder& builder, const kernels::RotaryParams& params)
    : CustomOp("rotary_embedding", builder.custom_ops, builder.platform) {
  auto table = kernels::RotaryTable::make(params);
  if (!table.ok()) {
    builder.fail(std::move(table).status().while_("rotary embedding"));
    return;
  }
  table_ = std::move(*table);
}

void RotaryEmbedding::forward(const platform::Context& ctx, std::span<const int32_t> positions, MatrixView<float> q,
                              MatrixView<float> k) const {
  if (form() == platform::OpForm::kNative) {
    rotate_native(positions, q);
    rotate_native(positions, k);
    return;
  }
  ctx.ops.rotary_embedding(ctx, table_, positions, q, k);
}

void RotaryEmbedding::rotate_native(std::span<const int32_t> positions, MatrixView<float> x) const {
  const auto half = static_cast<size_t>(table_.rotary_dim() / 2);
  for (int64_t token = 0; token < x.rows; ++token) {
    const int64_t position = positions[static_cast<size_t>(token)];
    for (int64_t begin = 0; begin < x.cols; begin += table_.head_dim()) {
      const std::span<float> head(x.row(token) + begin, static_cast<size_t>(table_.rotary_dim()));
      kernels::ref::rotate_head(head, {table_.cos_row(position), half}, {table_.sin_row(position), half}, table_.interleaved());
    }
  }
}

}  // namespace choral::layers
