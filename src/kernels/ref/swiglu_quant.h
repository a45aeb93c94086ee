// The oracle of fused/swiglu_quant.h's dequant_swiglu_quant, one element at a time: what is formed from the integers and the
// activation in double, y rounded to float once, quantised by the definition. Single-threaded.
#pragma once

#include "kernels/fused/swiglu_quant.h"

namespace choral::kernels::ref {

// y is always written: before smooth.
void dequant_swiglu_quant(const Int8Product& product, SiluHalf half, MatrixView<const float> smooth, const RowGroups* groups,
                          MatrixView<int8_t> q, std::span<float> scale, MatrixView<float> y);

}  // namespace choral::kernels::ref
