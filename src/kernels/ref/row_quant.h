// The oracle of quant/row_quant.h: plain loops by the definition, which every level gives bit for bit. Single-threaded.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/view.h"

namespace choral::kernels::ref {

void dynamic_quant_rows(MatrixView<const float> x, MatrixView<int8_t> q, std::span<float> scale);
void static_quant_rows(MatrixView<const float> x, float quant_scale, int32_t offset, MatrixView<int8_t> q,
                       std::span<float> scale);

}  // namespace choral::kernels::ref
