// What the ranks of a model that is divided tell each other within a step. A rank computes some outputs of each matrix, in the
// order of terms that one process would add them in, and is given the others: values are gathered and never summed across ranks,
// so any number of ranks gives the bits of one. Every rank makes the same calls in the same order, with matrices of one shape.
// The engine thread of a rank.
#pragma once

#include <span>

#include "base/function_ref.h"
#include "kernels/context.h"
#include "tensor/view.h"

namespace choral::platform {

class Collective {
 public:
  virtual ~Collective() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // Columns [begins[r], begins[r + 1]) of y are rank r's; then all of y is there on every rank.
  virtual void gather_columns(const kernels::Context& ctx, MatrixView<float> y, std::span<const int64_t> begins) = 0;
  // The same of rows, each of which has one owner.
  using OwnerOf = FunctionRef<int(int64_t row)>;
  virtual void gather_rows(const kernels::Context& ctx, MatrixView<float> y, OwnerOf owner) = 0;
};

}  // namespace choral::platform
