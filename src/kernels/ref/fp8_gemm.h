// The oracle of gemm_fp8.h: what W is, code by code; y = x·Wᵀ is ref/gemm.h's.
#pragma once

#include "tensor/view.h"

namespace choral::kernels::ref {

// w[j, k] = float(code) · scale, rounded once; scales [n, groups] of `group` k, the last one may be shorter.
void fp8_weight(MatrixView<const uint8_t> codes, int64_t group, MatrixView<const float> scales, MatrixView<float> w);

}  // namespace choral::kernels::ref
