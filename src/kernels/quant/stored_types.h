// The element types that weights may be stored in: what dequantise_row() reads. Pure; any thread.
#pragma once

#include <span>

#include "tensor/dtype.h"

namespace choral::kernels {

std::span<const DType> stored_types();

}  // namespace choral::kernels
