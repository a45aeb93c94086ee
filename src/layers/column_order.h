// The columns of a matrix in another order, in parts of equal width: part i of y is part order[i] of x. For projections whose
// checkpoint has the outputs of several purposes in turns, head by head; they keep their order for adapters' sake. By the
// operator take_rows, on rows of one part each. Built with its layer, then immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "platform/context.h"
#include "tensor/view.h"

namespace choral::layers {

class ColumnOrder {
 public:
  // x is x_cols wide.
  ColumnOrder(int64_t width, int64_t x_cols) : width_(width), x_parts_(x_cols / width) {}
  void add(int64_t first_col, int64_t cols);  // both multiples of the width

  // Both without gaps between rows. [rows, x_cols] -> [rows, columns that were added]
  void apply(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y) const;
  Status check(int64_t x_cols, int64_t y_cols) const;

 private:
  int64_t width_, x_parts_;
  std::vector<int32_t> order_;
};

}  // namespace choral::layers
