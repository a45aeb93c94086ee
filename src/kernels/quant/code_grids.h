// The points that GGUF's IQ1, IQ2 and IQ3 types choose from: eight elements of a row are a point of eight digits to base 3
// (IQ3: four elements, digits to base 8), named by its place in the ascending order of the type's points. The first element is
// the lowest digit.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace choral::kernels {

// The digits of all points in order: 2048 of 8 (IQ1_S, IQ1_M), 256, 512 and 1024 of 8 (IQ2_XXS, IQ2_XS, IQ2_S), 256 and 512 of 4
// (IQ3_XXS, IQ3_S).
const uint8_t* grid_points(DType type);

}  // namespace choral::kernels
