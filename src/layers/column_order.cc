#include "layers/column_order.h"

#include "platform/host_view.h"
#include "platform/ops/op_table.h"

namespace choral::layers {

void ColumnOrder::add(int64_t first_col, int64_t cols) {
  CHORAL_CHECK(first_col % width_ == 0 && cols % width_ == 0 && first_col + cols <= x_parts_ * width_, "parts are whole");
  for (int64_t part = first_col / width_; part < (first_col + cols) / width_; ++part)
    order_.push_back(static_cast<int32_t>(part));
}

void ColumnOrder::apply(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y) const {
  CHORAL_CHECK(check(x.cols, y.cols).ok() && x.stride == x.cols && y.stride == y.cols, "whole matrices are put in order");
  const platform::StepMark mark(ctx);
  const auto parts = static_cast<int64_t>(order_.size());
  const auto rows = ctx.kernel.scratch.make<int32_t>(x.rows * parts);
  for (int64_t i = 0; i < std::ssize(rows); ++i) rows[i] = static_cast<int32_t>(i / parts * x_parts_) + order_[i % parts];
  ctx.ops.take_rows(ctx, {x.data, x.rows * x_parts_, width_}, platform::place_indices<int32_t>(ctx, rows),
                    {y.data, y.rows * parts, width_});
}

Status ColumnOrder::check(int64_t x_cols, int64_t y_cols) const {
  const auto parts = static_cast<int64_t>(order_.size());
  if (x_cols == x_parts_ * width_ && y_cols == parts * width_) return {};
  return internal_error("{} columns become {}, not {} of {}", x_parts_ * width_, parts * width_, y_cols, x_cols);
}

}  // namespace choral::layers
