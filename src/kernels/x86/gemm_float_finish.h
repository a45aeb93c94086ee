// The last pass over a tile: y = tile (+ bias) (+ old y), eight columns at a time. Shared by every level that has AVX2.
#pragma once

#include "tensor/view.h"

namespace choral::kernels {

void finish_tile_avx2(MatrixView<const float> tile, const float* bias, bool accumulate, MatrixView<float> y);

}  // namespace choral::kernels
