// The products of one slab of prepared rows, by operand; each in a file of its own, which is what is compiled in parallel.
#pragma once

#include "prepared_x.h"

namespace choral_cuda {

struct Output;
using SlabMatmul = cudaError_t(const Launch& launch, const PackedWeight& w, const PreparedX& x, const Output& out);

SlabMatmul matmul_bf16, matmul_f16, matmul_int4, matmul_int8, matmul_e4m3, matmul_int8_rows, matmul_f32;

}  // namespace choral_cuda
