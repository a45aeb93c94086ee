// Float activations to int8, one scale per row and 32 consecutive k:
//   s = max|x| / 127,  q = rint(x / s) (float32 division, ties to even), clamped to [-127, 127]; so q is never -128.
//   A block whose s is 0 (all zero, or so small that max|x| / 127 underflows): q = 0, s = 0.
//   A block that holds a NaN or an infinity: q = 0, s = NaN, so every output of that row is NaN and no other row is touched.
// All levels give the same bits. Pure functions.
#pragma once

#include <cstdint>

#include "base/cpu_level.h"
#include "base/thread_pool.h"
#include "tensor/view.h"

namespace choral::kernels {

// Everything a dot-product kernel reads of one block, together, so that a row is one stream.
struct alignas(16) QuantisedBlock {
  int8_t q[32];
  float scale;
  int32_t
      start[2];  // -zero * sum(q) of the first and of the last 16: where an integer sum over weights stored as w + zero begins
  float sum;     // scale * float(sum(q)): what a weight block's minimum is multiplied with
};
static_assert(sizeof(QuantisedBlock) == 48);

// How a row stands in blocks.
enum class Planes : uint8_t {
  // Two planes whose sum stands for x: the coarse one is x quantised as above, the fine one is what it left over (x - s·q, one
  // rounding in float32 after the product's), quantised the same way. Together they carry 16 bits: |x - sum| <= max|x| / 64516 in
  // each block. Products of the two planes with the same integers of W are exact like those of one.
  kTwo,
  kOne,       // the coarse one alone
  kOneScale,  // one plane whose blocks all have the scale of the whole row: q and s are dynamic_quant_rows' (row_quant.h)
};
constexpr int plane_count(Planes planes) { return planes == Planes::kTwo ? 2 : 1; }
constexpr int64_t plane_blocks(int64_t k) { return (k + 31) / 32; }  // of a plane of a row; zeros follow a row in its last block

// For weights with one sum per block of 32, start[0] covers all 32 when `halves` is false.
struct QuantiseOptions {
  int32_t zero = 0;
  bool halves = false;
  Planes planes = Planes::kTwo;
  bool operator==(const QuantiseOptions&) const = default;
};

// x has k floats; plane p goes to out[p * plane_blocks(k)].
void quantise_row(CpuLevel level, const float* x, int64_t k, QuantiseOptions options, QuantisedBlock* out);

// Rows of x: plane p of row r goes to out[(planes r + p) * plane_blocks(k)]. By the calling thread alone, or divided over the
// pool.
void quantise_planes(CpuLevel level, MatrixView<const float> x, QuantiseOptions options, QuantisedBlock* out);
void quantise_planes(ThreadPool& pool, CpuLevel level, MatrixView<const float> x, QuantiseOptions options, QuantisedBlock* out);

}  // namespace choral::kernels
