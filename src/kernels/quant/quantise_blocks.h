// Rows of floats as GGUF blocks, byte for byte as ggml's reference and the `gguf` package make them:
//   Q8_0  d = max|x| / 127; q = x · (1/d) rounded half away from zero.
//   Q4_0  d = w / -8 for the w of largest magnitude; q = min(15, trunc(x · (1/d) + 8.5)).
//   Q4_1  d = (max − min) / 15, m = min; q = min(15, trunc((x − m) · (1/d) + 0.5)).
// d and m are stored as float16, q is made with the float32 ones; d = 0 gives 1/d = 0. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace choral::kernels {

bool can_quantise(DType type);

// `elements` finite floats, a multiple of the type's block, to row_bytes(type, elements) bytes. A d beyond float16 is infinite.
void quantise_row(DType type, const float* x, int64_t elements, std::byte* row);

}  // namespace choral::kernels
