// quantise_row (kernels/quantise_rows.h) with AVX2; bit-equal to the plain form.
#pragma once

#include "kernels/quantise_rows.h"

namespace choral::kernels::x86 {

void quantise_row_avx2(const float* x, int64_t k, QuantiseOptions options, QuantisedBlock* out);

}  // namespace choral::kernels::x86
