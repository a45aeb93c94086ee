// One stored row of any floating or GGUF block type as float, element by element as the format defines it: the oracle of every
// packed kernel, the loader's converter, and the lookup of stored embeddings.
//   plain:  F32, F16, BF16 exact; F64 rounded to nearest even.
//   blocks: Q8_0, Q4_0 d·(q − zero); Q4_1, Q5_1 d·q + m; Q5_0 d·(q − 16); Q2_K, Q4_K, Q5_K (d·sc)·q − (dmin·m); Q3_K
//           (d·sc)·(q − 4); Q6_K (d·sc)·(q − 32); IQ4_NL d·table[q]; IQ4_XS (d·sc)·table[q]; TQ1_0, TQ2_0 d·(q − 1); MXFP4
//           2^(e − 128)·(twice the E2M1 number); IQ1, IQ2, IQ3 (d·sc)·(what a point of code_grids.h stands for).
// Every product and sum is rounded to float on its own, in this order, so results equal the `gguf` package's bit for bit.
// Pure; any thread; `row` may be unaligned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace choral::kernels {

bool can_dequantise(DType type);

// `elements` is a multiple of the type's block; reads row_bytes(type, elements) bytes, writes `elements` floats.
void dequantise_row(DType type, const std::byte* row, int64_t elements, float* out);

}  // namespace choral::kernels
