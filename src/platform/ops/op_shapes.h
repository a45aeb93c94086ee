// Shape inference of the operators that give a matrix of the step ("meta"): from the shapes of the inputs to that of the output,
// without a device and without data. A model's graph is held to it when it is built; an input that does not fit is an error that
// names both shapes.
#pragma once

#include <span>

#include "base/status.h"
#include "tensor/view.h"

namespace choral::platform {

using ShapeRule = Result<Shape> (*)(std::span<const Shape> inputs);

namespace shape_of {

Result<Shape> matmul(std::span<const Shape> inputs);         // x [m, k], W [n, k] -> [m, n]
Result<Shape> same_as_first(std::span<const Shape> inputs);  // x [m, n], others [m, n] or [n] -> [m, n]
Result<Shape> per_head(std::span<const Shape> inputs);       // x [m, heads·d], w [d] -> x's
Result<Shape> gated(std::span<const Shape> inputs);          // x [m, 2n] -> [m, n]

}  // namespace shape_of
}  // namespace choral::platform
