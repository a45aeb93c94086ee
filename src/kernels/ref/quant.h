// Oracles of the quantised GEMM, as plain loops over GGUF's own bytes; they know nothing of panels or vectors.
// For one output: acc = 0; for each block b of 32 k, in order, for each of its scales (one, or one per 16 k for Q2_K, Q3_K,
// Q6_K, IQ1_M, IQ2_XS, IQ2_S):
//   isum = sum (stored - zero) * q            exact in int32; of codebooks what the code stands for, for MXFP4 twice, for IQ1
//   eight times that acc  = fma(float(isum), d_w * s_x, acc)
// and for types with a minimum, after that: acc = fma(min_w, s_x * float(sum q), acc), for Q2_K one for each 16 k.
// Every CPU level gives these bits.
#pragma once

#include <span>

#include "kernels/quant/quantise_planes.h"
#include "tensor/dtype.h"

namespace choral::kernels::ref {

// One plane: of two, the coarse one.
void quantise_row(const float* x, int64_t k, QuantiseOptions options, QuantisedBlock* out);

// Element i of a GGUF row: value = integer * scale + min.
struct QuantElement {
  int32_t integer;
  float scale;
  float min;
};
QuantElement quant_element(DType type, const std::byte* row, int64_t i);

float quantised_dot(DType type, const std::byte* row, std::span<const QuantisedBlock> x);

// The same operands in double, and the sum of the terms' magnitudes: what error bounds are made of.
struct DoubleDot {
  double value;
  double magnitude;
};
DoubleDot quantised_dot_double(DType type, const std::byte* row, std::span<const QuantisedBlock> x);

}  // namespace choral::kernels::ref
