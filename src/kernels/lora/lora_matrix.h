// One adapter's low-rank pair of one linear layer, packed once at load: y += factor · (F·(W·x + s·B·A·x) - W·x + o), where
// F (DoRA's output factors) is 1 and o (biases) is 0 for plain LoRA. A layer that stacks several projections (q, k, v) has one
// slice for each; their A's lie together so that x is read once, and a projection without adapter has no slice and costs nothing.
// True ranks: bytes and work are those of the slices' own ranks, rounded to nothing.
// Invariant 1: middle[i, j] and y[i, j] are sums in one fixed order, the same for any number of rows, tiles or threads. The
// middle is fp32; the scale is applied there, once. Immutable once packed; all calls are const and thread-safe, none allocates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/cpu_level.h"
#include "base/status.h"
#include "kernels/lora/lora_micro.h"
#include "tensor/view.h"

namespace choral::kernels {

// Columns [out_begin, out_begin + out) of y, as stored in the file.
struct LoRASliceSource {
  int64_t out_begin = 0;
  TensorView a;        // [r, in], fp32, fp16, bf16 or Q8_0
  TensorView b;        // [out, r]
  float scale = 1.0F;  // α/r, α/√r: multiplies the middle in fp32
};

struct LoRAMatrixSource {
  int64_t in = 0;
  int64_t out = 0;                            // of the whole stacked layer
  std::span<const LoRASliceSource> slices;    // ascending out_begin, apart from each other
  std::span<const float> output_factor = {};  // [out], DoRA: m / ‖W + s·B·A‖, 1 where a projection has none; empty = all 1
  std::span<const float> offset = {};         // [out], biases (already scaled); empty = none
};

// How the panels are stored: as the file has them (kAuto keeps each of fp32, fp16, bf16, Q8_0; where a layer's slices differ,
// fp32), one float type, or int8 with one scale a row of A and one a column of B.
enum class LoRAFormat : uint8_t { kAuto, kF32, kF16, kBF16, kI8 };

class LoRAMatrix {
 public:
  // Shapes that do not fit are invalid_argument naming slice and shapes. A source may have no slice at all (offset only).
  static Result<LoRAMatrix> pack(const LoRAMatrixSource& source, LoRAFormat format);
  // pack() in two steps, for panels in memory of the caller's: an adapter's layers in one piece of memory are read faster than in
  // hundreds, and neither use up the process's mappings nor cost a system call each. lay_out() checks the source and knows
  // panel_bytes(); fill() packs the same source to `panels`, 64-byte aligned and kept as long as this, writing every byte.
  static Result<LoRAMatrix> lay_out(const LoRAMatrixSource& source, LoRAFormat format);
  Status fill(const LoRAMatrixSource& source, std::byte* panels);

  int64_t in() const { return in_; }
  int64_t out() const { return out_; }
  int64_t rank() const { return rank_; }  // of all slices together: columns of the middle
  int64_t size_bytes() const;
  // Only B·A·x is added: what is added does not depend on W·x, and there is no bias.
  bool is_plain() const { return output_factor_.empty() && offset_.empty(); }

  // Columns [begin, end) of middle: middle[i, j] = factor · scale · Σ_k A[j, k]·x[i, k]. begin and end are multiples of
  // kShrinkRanks, or the end. x [rows, in], middle [rows, rank()].
  void shrink(CpuLevel level, MatrixView<const float> x, float factor, int64_t begin, int64_t end,
              MatrixView<float> middle) const;
  static constexpr int64_t kShrinkRanks = kLoRAGroup;

  // The pair the other way round, for latent attention, which moves it from keys to queries: what x of columns [begin, begin +
  // x.size()) of y gives the ranks, middle[j] = factor · scale · Σ_c F[c]·x[c]·B[c, j], and that the inputs: y[k] += Σ_j
  // middle[j]·A[j, k]. middle [rank()], y [in]
  void shrink_by_b(CpuLevel level, std::span<const float> x, float factor, int64_t begin, std::span<float> middle) const;
  void expand_by_a(CpuLevel level, std::span<const float> middle, std::span<float> y) const;

  // The same sums by what the panels' bytes give from front to back, piece by piece: the piece that begins at byte `at` (0 or
  // another's end) makes ranks of middle as shrink() does, or columns of `deltas` [rows, out], what lora_expand() would add of a
  // plain matrix; other columns than the slices' are not written. middle [rows, rank()] has no gaps between its rows. Returns
  // piece_end(at), at last panel_bytes().
  int64_t compute_piece(CpuLevel level, int64_t at, MatrixView<const float> x, float factor, MatrixView<float> middle,
                        MatrixView<float> deltas) const;
  int64_t piece_end(int64_t at) const;
  // y += deltas in the slices' columns.
  void add_deltas(CpuLevel level, MatrixView<float> deltas, MatrixView<float> y) const;

  // Asks for bytes [begin, end) of the packed panels, shrink's first: called for the next layer while this one computes.
  void prefetch(int64_t begin, int64_t end) const;
  // Asks for the first kHeadBytes that shrink() will read, or lora_expand() from column `col` on: called before another adapter's
  // work, so that this one's begins without a wait. The stream prefetcher takes it from there.
  void prefetch_shrink() const { prefetch(0, kHeadBytes); }
  void prefetch_expand(int64_t col) const;
  static constexpr int64_t kHeadBytes = 2048;
  // Asks for what is read beside the panels: how they are cut, and ranks' scales.
  void prefetch_cut() const;
  int64_t panel_bytes() const { return panel_bytes_; }

  // What was packed, for whoever multiplies by plain matrices (a device's stacks). Slice s has columns [out_begin, out_end) of y
  // and ranks [rank_begin, rank_begin + rank) of the middle.
  struct Place {
    int64_t out_begin = 0, out_end = 0;
    int64_t rank_begin = 0, rank = 0;
  };
  size_t slice_count() const { return slices_.size(); }
  const Place& slice(size_t s) const { return slices_[s]; }
  // Row `rank` of A as shrink() multiplies by it, its scale included. [in]
  void read_a(int64_t rank, std::span<float> out) const;
  // What column `col` of y takes of slice s's ranks: a row of B. [slice(s).rank]
  void read_b(size_t s, int64_t col, std::span<float> out) const;
  std::span<const float> output_factor() const { return output_factor_; }  // [out], empty = all 1
  std::span<const float> offset() const { return offset_; }                // [out], empty = none

  std::span<const std::byte> panels() const { return {panels_, static_cast<size_t>(panel_bytes_)}; }

 private:
  friend class LoRAPacker;
  friend class LoRAExpander;
  // B of one slice: panels of 16 columns on y's own grid, the borders filled with zeros; two slices may share a panel of y.
  struct Slice : Place {
    int64_t b_offset = 0;  // of its first panel in panels_
  };
  // A run of one slice's columns, or of ranks where `slice` is null.
  struct Piece {
    const Slice* slice = nullptr;
    int64_t begin = 0, end = 0;
    int64_t bytes_end = 0;
  };
  LoRAMatrix() = default;
  Piece piece(int64_t at) const;

  int64_t in_ = 0, out_ = 0, rank_ = 0;
  LoRAStore a_store_ = LoRAStore::kF32, b_store_ = LoRAStore::kF32;
  std::vector<Slice> slices_;
  // A: groups of up to 8 rows (across slices), each [chunks of 32 k][rows][32], k padded with zeros; then every slice's B.
  const std::byte* panels_ = nullptr;
  int64_t panel_bytes_ = 0;
  AlignedBuffer own_panels_;      // empty when they lie in memory of the caller's
  std::vector<float> row_scale_;  // [rank], times the scale of quantised rows of A
  std::vector<float> output_factor_, offset_;
};

// One adapter's share of some rows: what shrink() gave for them, and the factor they take it with.
struct LoRATerm {
  const LoRAMatrix* matrix = nullptr;
  const float* middle = nullptr;  // [rows, matrix->rank()]
  float factor = 1.0F;
};

// tile [rows, cols] holds W·x of columns [col, col + cols) of y and gets every term's share added, in order; all rows have the
// same terms, whose middles begin at the tile's first row. DoRA's W·x is the tile before any term.
void lora_expand(CpuLevel level, std::span<const LoRATerm> terms, int64_t col, MatrixView<float> tile);

}  // namespace choral::kernels
