// x in three exact terms, x = hi + mid + lo: 8 of its 24 significant bits each, so each term is a bf16 number. Cut, not rounded.
//   Terms lie in the order of their summation, lo first; k is padded with zeros to whole blocks of 32.
//   A NaN or an infinity is all in hi. Subnormal terms are kept here, and taken as zero by whoever multiplies.
// Two forms of the same numbers: bf16 tiles for the tile unit and floats for a single row. Needs AVX-512.
#pragma once

#include <cstdint>

#include "tensor/view.h"

namespace choral::kernels {

inline constexpr int64_t kAmxBlockK = 32;  // k of one tile of x or of weights
inline constexpr int64_t kAmxTerms = 3;

// Rows [0, rows) of x as `tiles` row tiles of near-equal height; tile t: [k / 32][lo, mid, hi][height][32] of T.
template <class T>
struct SplitRows {
  const T* data;
  int64_t rows, tiles, padded_k;

  int64_t begin(int64_t t) const { return t * rows / tiles; }
  int height(int64_t t) const { return static_cast<int>(begin(t + 1) - begin(t)); }
  const T* tile(int64_t t, int64_t k0) const { return data + (begin(t) * padded_k + k0 * height(t)) * kAmxTerms; }
};

// Blocks [block0, block1) of 32 k of all rows; `out` is split.data, 64-byte aligned.
void split_rows(const SplitRows<uint16_t>& split, MatrixView<const float> x, int64_t block0, int64_t block1, uint16_t* out);
void split_rows(const SplitRows<float>& split, MatrixView<const float> x, int64_t block0, int64_t block1, float* out);

}  // namespace choral::kernels
