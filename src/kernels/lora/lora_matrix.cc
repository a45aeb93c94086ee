#include "kernels/lora/lora_matrix.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/checked_math.h"
#include "kernels/gemm/tile_finish.h"

namespace choral::kernels {
namespace {

constexpr int64_t kPieceBytes = 32768;  // about: many enough to be few, few enough to stay in the second-level cache

}  // namespace

int64_t LoRAMatrix::size_bytes() const {
  const size_t floats = row_scale_.size() + output_factor_.size() + offset_.size();
  return panel_bytes() + static_cast<int64_t>(floats * sizeof(float) + slices_.size() * sizeof(Slice));
}

void LoRAMatrix::prefetch(int64_t begin, int64_t end) const {
  constexpr int64_t kLine = static_cast<int64_t>(kCacheLineBytes);
  begin = std::max<int64_t>(begin, 0) / kLine * kLine;
  end = std::min(end, panel_bytes());
  for (int64_t at = begin; at < end; at += kLine) __builtin_prefetch(panels_ + at, 0, 2);
}

void LoRAMatrix::prefetch_cut() const {
  for (const auto bytes : {std::as_bytes(std::span(slices_)), std::as_bytes(std::span(row_scale_))}) {
    for (size_t at = 0; at < bytes.size(); at += kCacheLineBytes) __builtin_prefetch(bytes.data() + at);
  }
}

void LoRAMatrix::prefetch_expand(int64_t col) const {
  for (const Slice& slice : slices_) {
    if (slice.out_end <= col) continue;
    const int64_t panels = std::max<int64_t>(0, col / kLoRAColumns - slice.out_begin / kLoRAColumns);
    const int64_t begin = slice.b_offset + panels * choral::kernels::panel_bytes(b_store_, slice.rank);
    return prefetch(begin, begin + kHeadBytes);
  }
}

void LoRAMatrix::shrink(CpuLevel level, MatrixView<const float> x, float factor, int64_t begin, int64_t end,
                        MatrixView<float> middle) const {
  CHORAL_DCHECK(x.cols == in_ && middle.cols == rank_ && middle.rows == x.rows, "shrink: x [rows, in], middle [rows, rank]");
  CHORAL_DCHECK(begin % kShrinkRanks == 0 && (end % kShrinkRanks == 0 || end == rank_) && end <= rank_, "shrink: a cut of ranks");
  const LoRAKernels& kernels = lora_kernels(level);
  const int64_t row_bytes = chunk_bytes(a_store_), chunks = in_ / kLoRAChunk;
  const int64_t tail = in_ - chunks * kLoRAChunk, packed_chunks = ceil_div(in_, kLoRAChunk);
  alignas(64) float tails[kMaxShrinkRows][kLoRAChunk];
  std::array<const float*, kMaxShrinkRows> rows{}, row_tails{};
  std::array<float, kShrinkRanks> scale{};

  // Rows outside, so that four of them stay in L1 while A streams by.
  for (int64_t i = 0; i < x.rows;) {
    const int tile = kernels.shrink_rows(x.rows - i);
    for (int r = 0; r < tile; ++r) {
      rows[r] = x.row(i + r);
      row_tails[r] = tails[r];
      if (tail != 0) std::fill(std::copy_n(x.row(i + r) + chunks * kLoRAChunk, tail, tails[r]), std::end(tails[r]), 0.0F);
    }
    for (int64_t group = begin; group < end; group += kShrinkRanks) {
      const int64_t ranks = std::min(kShrinkRanks, rank_ - group);
      const std::byte* panel = panels_ + group * packed_chunks * row_bytes;
      for (int64_t p = 0; p < ranks;) {
        const int at_once = LoRAKernels::shrink_ranks(tile, ranks - p);
        for (int q = 0; q < at_once; ++q) scale[q] = factor * row_scale_[group + p + q];
        ShrinkArgs args{.a = panel + p * row_bytes,
                        .rank_bytes = row_bytes,
                        .chunk_bytes = ranks * row_bytes,
                        .chunks = chunks,
                        .a_tail = nullptr,
                        .a_tail_rank_bytes = row_bytes,
                        .ahead = kLoRAAheadBytes,
                        .x = rows.data(),
                        .x_tail = row_tails.data(),
                        .scale = scale.data(),
                        .out = middle.row(i) + group + p,
                        .out_stride = middle.stride};
        if (tail != 0) args.a_tail = args.a + chunks * args.chunk_bytes;
        kernels.shrink(a_store_, tile, at_once)(args);
        p += at_once;
      }
    }
    i += tile;
  }
}

void LoRAMatrix::shrink_by_b(CpuLevel level, std::span<const float> x, float factor, int64_t begin,
                             std::span<float> middle) const {
  CHORAL_DCHECK(std::ssize(middle) == rank_ && begin >= 0 && begin + std::ssize(x) <= out_, "shrink_by_b: columns of y");
  constexpr int64_t kPanelsAtOnce = 16;
  const auto kernel = lora_kernels(level).shrink_by_b(b_store_);
  std::fill(middle.begin(), middle.end(), 0.0F);
  alignas(64) std::array<float, kPanelsAtOnce * kLoRAColumns> padded{};
  for (const Slice& slice : slices_) {
    const int64_t from = std::max(begin, slice.out_begin), end = std::min(begin + std::ssize(x), slice.out_end);
    const int64_t bytes = choral::kernels::panel_bytes(b_store_, slice.rank), first = slice.out_begin / kLoRAColumns;
    for (int64_t panel = from / kLoRAColumns; panel * kLoRAColumns < end; panel += kPanelsAtOnce) {
      const int64_t panels = std::min(kPanelsAtOnce, ceil_div(end, kLoRAColumns) - panel);
      for (int64_t i = 0; i < panels * kLoRAColumns; ++i) {
        const int64_t c = panel * kLoRAColumns + i;
        const bool inside = c >= from && c < end;
        padded[i] = !inside ? 0.0F : output_factor_.empty() ? x[c - begin] : output_factor_[c] * x[c - begin];
      }
      kernel({.b = panels_ + slice.b_offset + (panel - first) * bytes,
              .panel_bytes = bytes,
              .panels = panels,
              .rank = slice.rank,
              .x = padded.data(),
              .out = middle.data() + slice.rank_begin});
    }
  }
  for (int64_t j = 0; j < rank_; ++j) middle[j] *= factor * row_scale_[j];
}

void LoRAMatrix::expand_by_a(CpuLevel level, std::span<const float> middle, std::span<float> y) const {
  CHORAL_DCHECK(std::ssize(middle) == rank_ && std::ssize(y) == in_, "expand_by_a: middle [rank], y [in]");
  const int64_t whole = in_ / kLoRAChunk, tail = in_ - whole * kLoRAChunk;
  ExpandByAArgs args{.a = panels_,
                     .packed_chunks = ceil_div(in_, kLoRAChunk),
                     .first = 0,
                     .chunks = whole,
                     .rank = rank_,
                     .middle = middle.data(),
                     .y = y.data()};
  const auto kernel = lora_kernels(level).expand_by_a(a_store_);
  kernel(args);
  if (tail == 0) return;
  alignas(64) std::array<float, kLoRAChunk> last{};
  std::copy_n(y.data() + whole * kLoRAChunk, tail, last.data());
  args.first = whole;
  args.chunks = 1;
  args.y = last.data();
  kernel(args);
  std::copy_n(last.data(), tail, y.data() + whole * kLoRAChunk);
}

// Works on up to kMaxExpandRows rows of a tile.
class LoRAExpander {
 public:
  // Whether what it computes is added to the tile or takes its place.
  enum class Result : uint8_t { kAdded, kWritten };

  LoRAExpander(const LoRAKernels& kernels, int64_t col, int rows, Result result = Result::kAdded)
      : kernels_(kernels), col_(col), rows_(rows), adds_(result == Result::kAdded) {}

  // B·middle, the columns of the matrix's slices only: not even a sign of zero changes elsewhere.
  void expand(const LoRAMatrix& m, const float* middle, MatrixView<float> tile) const {
    for (const LoRAMatrix::Slice& slice : m.slices_) {
      expand(m, slice, middle, std::max(slice.out_begin, col_), std::min(slice.out_end, col_ + tile.cols), tile);
    }
  }

  // The same in columns [begin, end) of one slice.
  void expand(const LoRAMatrix& m, const LoRAMatrix::Slice& slice, const float* middle, int64_t begin, int64_t end,
              MatrixView<float> tile) const {
    if (begin >= end) return;
    const int64_t whole_begin = std::min(round_up(begin, kLoRAColumns), end);
    const int64_t whole_end = std::max(end / kLoRAColumns * kLoRAColumns, whole_begin);
    if (begin < whole_begin) expand_part(m, slice, middle, begin, whole_begin, tile);
    if (whole_begin < whole_end) expand_whole(m, slice, middle, whole_begin, whole_end, tile);
    if (whole_end < end) expand_part(m, slice, middle, whole_end, end, tile);
  }

  // acc += factor · ((f - 1)·base + o) + f·(B·middle)
  void add_rescaled(const LoRATerm& term, const float* middle, MatrixView<const float> base, MatrixView<float> acc) const {
    const LoRAMatrix& m = *term.matrix;
    alignas(64) float delta[kMaxExpandRows][kLoRAColumns] = {};
    expand(m, middle, {&delta[0][0], rows_, base.cols, kLoRAColumns});
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < base.cols; ++c) {
        const float f = m.output_factor_.empty() ? 1.0F : m.output_factor_[col_ + c];
        const float o = m.offset_.empty() ? 0.0F : m.offset_[col_ + c];
        acc.row(r)[c] += term.factor * ((f - 1.0F) * base.row(r)[c] + o) + f * delta[r][c];
      }
    }
  }

 private:
  ExpandArgs args(const LoRAMatrix& m, const LoRAMatrix::Slice& slice, const float* middle, int64_t col) const {
    const int64_t bytes = choral::kernels::panel_bytes(m.b_store_, slice.rank);
    return {.b = m.panels_ + slice.b_offset + (col / kLoRAColumns - slice.out_begin / kLoRAColumns) * bytes,
            .panel_bytes = bytes,
            .panels = 1,
            .rank = slice.rank,
            .middle = middle + slice.rank_begin,
            .middle_stride = m.rank_,
            .y = nullptr,
            .accumulate = false};
  }

  void expand_whole(const LoRAMatrix& m, const LoRAMatrix::Slice& slice, const float* middle, int64_t begin, int64_t end,
                    MatrixView<float> tile) const {
    std::array<float*, kMaxExpandRows> y{};
    for (int r = 0; r < rows_; ++r) y[r] = tile.row(r) + begin - col_;
    ExpandArgs whole = args(m, slice, middle, begin);
    whole.panels = (end - begin) / kLoRAColumns;
    whole.y = y.data();
    whole.accumulate = adds_;
    kernels_.expand(m.b_store_, rows_)(whole);
  }

  // Columns [begin, end) of one panel.
  void expand_part(const LoRAMatrix& m, const LoRAMatrix::Slice& slice, const float* middle, int64_t begin, int64_t end,
                   MatrixView<float> tile) const {
    alignas(64) float delta[kMaxExpandRows][kLoRAColumns];
    std::array<float*, kMaxExpandRows> y{};
    for (int r = 0; r < rows_; ++r) y[r] = delta[r];
    ExpandArgs part = args(m, slice, middle, begin);
    part.y = y.data();
    kernels_.expand(m.b_store_, rows_)(part);
    for (int r = 0; r < rows_; ++r) {
      for (int64_t c = begin; c < end; ++c) {
        float& out = tile.row(r)[c - col_];
        out = adds_ ? out + delta[r][c % kLoRAColumns] : delta[r][c % kLoRAColumns];
      }
    }
  }

  const LoRAKernels& kernels_;
  int64_t col_;
  int rows_;
  bool adds_;
};

LoRAMatrix::Piece LoRAMatrix::piece(int64_t at) const {
  const int64_t rank_bytes = ceil_div(in_, kLoRAChunk) * chunk_bytes(a_store_);
  if (at < rank_ * rank_bytes) {
    const int64_t groups = std::max<int64_t>(1, kPieceBytes / (kShrinkRanks * rank_bytes));
    const int64_t begin = at / rank_bytes, end = std::min(begin + groups * kShrinkRanks, rank_);
    return {nullptr, begin, end, end * rank_bytes};
  }
  const auto next = std::find_if(slices_.begin(), slices_.end(), [at](const Slice& s) { return s.b_offset > at; });
  const Slice& slice = *std::prev(next);
  const int64_t bytes = choral::kernels::panel_bytes(b_store_, slice.rank), first = slice.out_begin / kLoRAColumns;
  const int64_t panel = first + (at - slice.b_offset) / bytes;
  const int64_t end = std::min(panel + std::max<int64_t>(1, kPieceBytes / bytes), ceil_div(slice.out_end, kLoRAColumns));
  return {&slice, std::max(panel * kLoRAColumns, slice.out_begin), std::min(end * kLoRAColumns, slice.out_end),
          slice.b_offset + (end - first) * bytes};
}

int64_t LoRAMatrix::piece_end(int64_t at) const { return piece(at).bytes_end; }

int64_t LoRAMatrix::compute_piece(CpuLevel level, int64_t at, MatrixView<const float> x, float factor, MatrixView<float> middle,
                                  MatrixView<float> deltas) const {
  const Piece p = piece(at);
  if (p.slice == nullptr) {
    shrink(level, x, factor, p.begin, p.end, middle);
    return p.bytes_end;
  }
  const LoRAKernels& kernels = lora_kernels(level);
  for (int64_t row = 0; row < deltas.rows;) {
    const int rows = LoRAKernels::expand_rows(deltas.rows - row);
    const LoRAExpander expander(kernels, 0, rows, LoRAExpander::Result::kWritten);
    expander.expand(*this, *p.slice, middle.row(row), p.begin, p.end, deltas.sub_rows(row, rows));
    row += rows;
  }
  return p.bytes_end;
}

void LoRAMatrix::add_deltas(CpuLevel level, MatrixView<float> deltas, MatrixView<float> y) const {
  for (const Slice& slice : slices_) {
    finish_tile(level, deltas.sub_cols(slice.out_begin, slice.out_end - slice.out_begin), 1, slice.out_begin,
                {.accumulate = true}, y);
  }
}

void lora_expand(CpuLevel level, std::span<const LoRATerm> terms, int64_t col, MatrixView<float> tile) {
  const LoRAKernels& kernels = lora_kernels(level);
  const bool plain = std::all_of(terms.begin(), terms.end(), [](const LoRATerm& t) { return t.matrix->is_plain(); });
  for (int64_t row = 0; row < tile.rows;) {
    const int rows = LoRAKernels::expand_rows(tile.rows - row);
    const MatrixView<float> block = tile.sub_rows(row, rows);
    if (plain) {
      for (const LoRATerm& term : terms) {
        LoRAExpander(kernels, col, rows).expand(*term.matrix, term.middle + row * term.matrix->rank(), block);
      }
    } else {
      // The base must be kept beside the sum: one panel at a time.
      for (int64_t c = 0; c < tile.cols; c += kLoRAColumns) {
        const LoRAExpander expander(kernels, col + c, rows);
        const MatrixView<float> panel = block.sub_cols(c, std::min(kLoRAColumns, tile.cols - c));
        alignas(64) float kept[kMaxExpandRows][kLoRAColumns];
        for (int r = 0; r < rows; ++r) std::copy_n(panel.row(r), panel.cols, kept[r]);
        const MatrixView<const float> base(&kept[0][0], rows, panel.cols, kLoRAColumns);
        for (const LoRATerm& term : terms) {
          const float* middle = term.middle + row * term.matrix->rank();
          if (term.matrix->is_plain()) {
            expander.expand(*term.matrix, middle, panel);
          } else {
            expander.add_rescaled(term, middle, base, panel);
          }
        }
      }
    }
    row += rows;
  }
}

}  // namespace choral::kernels
