// The micro-kernels behind lora_matrix.h and lora_stack.h, one table for each CPU level.
// Shrink: a tile of R rows × P ranks, k along the lanes. Each (row, rank) is one chain of vectors over k = 0 … in, its lanes
// summed by one fixed tree; expand: R rows × panels of 16 columns, each (row, column) one chain over the ranks in order. No tile
// shape shows in the bits, so how rows and ranks are cut, and by whom, never matters (invariant 1). Weights come in pairs of
// 16-element rows (32 k of one rank; two ranks of one panel) so that bf16 widens in one operation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_level.h"

namespace choral::kernels {

enum class LoRAStore : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI8,
  kQ8,  // GGUF's Q8_0 as it is: 32 int8 with a scale, of one rank of A over k or one column of B over ranks
};

// A pair is 32 values of one type: first[16], second[16]; bf16 as first[i] | second[i] << 16 in word i. A last row without a
// partner is 16 plain values. Bytes of one value:
constexpr int64_t value_bytes(LoRAStore store) {
  return store == LoRAStore::kF32 ? 4 : store == LoRAStore::kI8 || store == LoRAStore::kQ8 ? 1 : 2;
}

inline constexpr int64_t kLoRAChunk = 32;    // k of one step of shrink, ranks of one block of kQ8
inline constexpr int64_t kLoRAColumns = 16;  // of a panel of B
inline constexpr int64_t kLoRAGroup = 8;     // ranks of A that lie together
// A chunk of one rank of A: a float scale (kQ8 only), then a pair.
constexpr int64_t chunk_bytes(LoRAStore store) { return kLoRAChunk * value_bytes(store) + (store == LoRAStore::kQ8 ? 4 : 0); }
// A panel: 16 float column scales (kI8: once, kQ8: before each 32 ranks), then [rank][16] in pairs.
constexpr int64_t panel_bytes(LoRAStore store, int64_t rank) {
  const int64_t scales = store == LoRAStore::kI8 ? 1 : store == LoRAStore::kQ8 ? rank / kLoRAChunk : 0;
  return rank * kLoRAColumns * value_bytes(store) + scales * kLoRAColumns * 4;
}
// Weights are fetched so far ahead: longer than memory takes to answer, far less than L1 holds.
inline constexpr int64_t kLoRAAheadBytes = 4096;
inline constexpr int kMaxShrinkRows = 4;  // of any level
inline constexpr int kMaxExpandRows = 8;

// out[r][p] = scale[p] · Σ_k a[p][k]·x[r][k]
struct ShrinkArgs {
  const std::byte* a;  // pair of rank p, chunk c at a + p·rank_bytes + c·chunk_bytes
  int64_t rank_bytes;
  int64_t chunk_bytes;
  int64_t chunks;           // whole ones: 32 of x's floats exist for each
  const std::byte* a_tail;  // one more chunk, padded with zeros, when in is no multiple of 32; else null
  int64_t a_tail_rank_bytes;
  int64_t ahead;               // bytes from a rank's chunk to the one of it that is fetched meanwhile
  const float* const* x;       // [R] rows
  const float* const* x_tail;  // [R] 32 floats each, beyond the row's end zero
  const float* scale;          // [8], of which P are used
  float* out;
  int64_t out_stride;
};
using ShrinkKernel = void (*)(const ShrinkArgs&);

// y[r][c] = (y[r][c] +) Σ_j middle[r][j]·b[j][c] for `panels` panels of 16 columns
struct ExpandArgs {
  const std::byte* b;  // the first panel
  int64_t panel_bytes;
  int64_t panels;
  int64_t rank;
  const float* middle;
  int64_t middle_stride;
  float* const* y;  // [R] rows, at the first panel's first column
  bool accumulate;  // adds to what y held
};
using ExpandKernel = void (*)(const ExpandArgs&);

// The pair the other way round, one row at a time. out[j] += Σ_c x[c]·b[j][c] over `panels` panels of 16 columns.
struct ShrinkByBArgs {
  const std::byte* b;  // the first panel
  int64_t panel_bytes;
  int64_t panels;
  int64_t rank;
  const float* x;  // [panels · 16]
  float* out;      // [rank]
};
using ShrinkByBKernel = void (*)(const ShrinkByBArgs&);

// y[k] += Σ_j middle[j]·a[j][k] for the 32 k of each of `chunks` chunks from `first` on.
struct ExpandByAArgs {
  const std::byte* a;     // all of A
  int64_t packed_chunks;  // of a rank
  int64_t first;
  int64_t chunks;
  int64_t rank;
  const float* middle;
  float* y;  // at chunk `first`
};
using ExpandByAKernel = void (*)(const ExpandByAArgs&);

struct LoRAKernels {
  ShrinkKernel (*shrink)(LoRAStore, int rows, int ranks);  // rows, ranks as the two functions below give them
  ExpandKernel (*expand)(LoRAStore, int rows);
  ShrinkByBKernel (*shrink_by_b)(LoRAStore);
  ExpandByAKernel (*expand_by_a)(LoRAStore);
  int max_shrink_rows;  // of this level

  // The next tile's size when so many are left.
  int shrink_rows(int64_t left) const { return left >= 4 && max_shrink_rows >= 4 ? 4 : left >= 2 ? 2 : 1; }
  static int shrink_ranks(int rows, int64_t left) {
    if (rows == 1 && left >= 8) return 8;
    return left >= 4 ? 4 : 1;
  }
  static int expand_rows(int64_t left) { return left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1; }
};

const LoRAKernels& lora_kernels(CpuLevel level);

}  // namespace choral::kernels
