// Weights kept as fp32, bf16 or fp16 and multiplied with float activations: the plain, unquantised matrix.
//   y[i, j] = Σ_k x[i, k] · w[j, k] in fp32: x is never rounded, w is widened exactly, one chain of fused multiply-adds for each
//   output with k = 0, 1, 2, …; then (+ product hook) (+ bias) (+ old y) (+ result hook), in this order.
// At CPU level amx, bf16 weights are summed as the tile unit does instead, if it passes a probe (x86/gemm_float_amx.h).
// Rows are independent of each other and of their number, of threads and of blocking, bit for bit. Thread-safety:
// packed_matrix.h.
#pragma once

#include <memory>
#include <span>

#include "kernels/gemm/packed_matrix.h"

namespace choral::kernels {

// Stacks the parts' rows and packs them as `as` (kF32, kBF16 or kF16), rounding to nearest even where `as` is narrower than the
// source. Parts may be of any float or GGUF block type. Sources may be unmapped afterwards.
Result<std::unique_ptr<PackedMatrix>> pack_float(std::span<const WeightRows> parts, DType as, ThreadPool& pool);

// size_bytes() of what pack_float() makes of n rows of k.
int64_t packed_float_bytes(int64_t n, int64_t k, DType as);

}  // namespace choral::kernels
