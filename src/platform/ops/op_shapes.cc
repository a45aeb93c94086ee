#include "platform/ops/op_shapes.h"

namespace choral::platform::shape_of {
namespace {

Status expect_count(std::span<const Shape> inputs, size_t count) {
  if (inputs.size() >= count) return {};
  return invalid_argument("{} inputs where {} are needed", inputs.size(), count);
}

Status expect_rank(const Shape& shape, int rank) {
  if (shape.rank() == rank) return {};
  return invalid_argument("an input of shape {} where one of {} dimensions is needed", shape.to_string(), rank);
}

}  // namespace

Result<Shape> matmul(std::span<const Shape> inputs) {
  CHORAL_RETURN_IF_ERROR(expect_count(inputs, 2));
  const Shape &x = inputs[0], &w = inputs[1];
  CHORAL_RETURN_IF_ERROR(expect_rank(x, 2));
  CHORAL_RETURN_IF_ERROR(expect_rank(w, 2));
  if (x[1] != w[1]) return invalid_argument("x {} and W {} differ in k", x.to_string(), w.to_string());
  return Shape{x[0], w[0]};
}

Result<Shape> same_as_first(std::span<const Shape> inputs) {
  CHORAL_RETURN_IF_ERROR(expect_count(inputs, 1));
  const Shape& x = inputs[0];
  CHORAL_RETURN_IF_ERROR(expect_rank(x, 2));
  for (const Shape& other : inputs.subspan(1)) {
    const bool fits = other == x || (other.rank() == 1 && other[0] == x[1]);
    if (!fits) return invalid_argument("{} beside x {}", other.to_string(), x.to_string());
  }
  return x;
}

Result<Shape> per_head(std::span<const Shape> inputs) {
  CHORAL_RETURN_IF_ERROR(expect_count(inputs, 2));
  const Shape &x = inputs[0], &w = inputs[1];
  CHORAL_RETURN_IF_ERROR(expect_rank(x, 2));
  CHORAL_RETURN_IF_ERROR(expect_rank(w, 1));
  if (w[0] <= 0 || x[1] % w[0] != 0) return invalid_argument("x {} is not whole heads of {}", x.to_string(), w[0]);
  return x;
}

Result<Shape> gated(std::span<const Shape> inputs) {
  CHORAL_RETURN_IF_ERROR(expect_count(inputs, 1));
  const Shape& x = inputs[0];
  CHORAL_RETURN_IF_ERROR(expect_rank(x, 2));
  if (x[1] % 2 != 0) return invalid_argument("x {} has no two halves", x.to_string());
  return Shape{x[0], x[1] / 2};
}

}  // namespace choral::platform::shape_of
