#include "lora/plan/divided_shrinks.h"

#include <algorithm>

#include "base/checked_math.h"
#include "kernels/task_size.h"
#include "platform/collective.h"
#include "platform/ops/op_table.h"

namespace choral::lora {
namespace {

using kernels::LoRAMatrix;
using kernels::LoRAShrink;

constexpr int64_t kRowsApart = 64;  // more rows of one adapter are divided too: long prompts of a low rank

// A shrink's columns [first_rank, …) of its rows, which are floats [begin, end) of what ranks send each other.
struct Piece {
  LoRAShrink shrink;
  int64_t begin = 0, end = 0;

  MatrixView<float> made() const { return shrink.middle.sub_cols(shrink.first_rank, shrink.ranks()); }
};

// Calls run(shrink) for the pieces of all shrinks, rows of A one after the other.
template <class Run>
void for_each_piece(std::span<const LoRAShrink> shrinks, Run run) {
  for (const LoRAShrink& whole : shrinks) {
    for (int64_t rank = 0; rank < whole.matrix->rank(); rank += LoRAMatrix::kShrinkRanks) {
      for (int64_t row = 0; row < whole.x.rows; row += kRowsApart) {
        const int64_t rows = std::min(kRowsApart, whole.x.rows - row);
        run(LoRAShrink{.matrix = whole.matrix,
                       .x = whole.x.sub_rows(row, rows),
                       .factor = whole.factor,
                       .middle = whole.middle.sub_rows(row, rows),
                       .first_rank = rank,
                       .most_ranks = LoRAMatrix::kShrinkRanks});
      }
    }
  }
}

std::span<const Piece> cut(std::span<const LoRAShrink> shrinks, Arena& scratch) {
  size_t count = 0;
  for_each_piece(shrinks, [&](const LoRAShrink&) { ++count; });
  const auto pieces = scratch.make<Piece>(count);
  auto next = pieces.begin();
  int64_t floats = 0;
  for_each_piece(shrinks, [&](const LoRAShrink& part) {
    const int64_t begin = floats;
    floats += part.x.rows * part.ranks();
    *next++ = {part, begin, floats};
  });
  return pieces;
}

// The pieces of each rank, by the middle of each: [ranks + 1]
std::span<const size_t> share_out(std::span<const Piece> pieces, int ranks, Arena& scratch) {
  const auto begins = scratch.make<size_t>(static_cast<size_t>(ranks) + 1);
  for (int r = 0; r <= ranks; ++r) {
    const int64_t bound = pieces.back().end * r / ranks;
    const auto first = std::partition_point(pieces.begin(), pieces.end(),
                                            [&](const Piece& piece) { return (piece.begin + piece.end) / 2 < bound; });
    begins[static_cast<size_t>(r)] = static_cast<size_t>(r == ranks ? pieces.end() - pieces.begin() : first - pieces.begin());
  }
  return begins;
}

// copy(piece) for each, by all threads where that is worth it.
template <class Copy>
void for_pieces(const platform::Context& ctx, std::span<const Piece> pieces, Copy copy) {
  const int64_t grain = kernels::pieces_per_task(kernels::kLightTask, kRowsApart * LoRAMatrix::kShrinkRanks);
  ctx.kernel.pool.parallel_for(std::ssize(pieces), grain, [&](int64_t begin, int64_t end, int) {
    for (const Piece& piece : pieces.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin))) copy(piece);
  });
}

}  // namespace

void run_divided_shrinks(const platform::Context& ctx, std::span<const LoRAShrink> shrinks) {
  const platform::StepMark mark(ctx);
  Arena& scratch = ctx.kernel.scratch;
  const auto pieces = cut(shrinks, scratch);
  if (pieces.empty()) return;
  const auto begins = share_out(pieces, ctx.ranks->ranks(), scratch);
  const auto of_rank = [&](size_t r) { return pieces.subspan(begins[r], begins[r + 1] - begins[r]); };
  const auto self = static_cast<size_t>(ctx.ranks->rank());
  const auto own = of_rank(self);
  const auto work = scratch.make<LoRAShrink>(own.size());
  std::transform(own.begin(), own.end(), work.begin(), [](const Piece& piece) { return piece.shrink; });
  ctx.ops.packed_lora_shrink(ctx, work);

  const auto sent = ctx.make_matrix(1, pieces.back().end);
  for_pieces(ctx, own, [&](const Piece& piece) {
    const auto made = piece.made();
    float* to = sent.data + piece.begin;
    for (int64_t row = 0; row < made.rows; ++row) to = std::copy_n(made.row(row), made.cols, to);
  });
  const auto bounds = scratch.make<int64_t>(begins.size());
  for (size_t r = 0; r < begins.size(); ++r) bounds[r] = begins[r] == pieces.size() ? sent.cols : pieces[begins[r]].begin;
  ctx.ranks->gather_columns(ctx.kernel, sent, bounds);
  for (size_t r = 0; r + 1 < begins.size(); ++r) {
    if (r == self) continue;
    for_pieces(ctx, of_rank(r), [&](const Piece& piece) {
      const auto made = piece.made();
      const float* from = sent.data + piece.begin;
      for (int64_t row = 0; row < made.rows; ++row, from += made.cols) std::copy_n(from, made.cols, made.row(row));
    });
  }
}

}  // namespace choral::lora
