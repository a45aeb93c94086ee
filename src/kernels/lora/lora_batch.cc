#include "kernels/lora/lora_batch.h"

#include <algorithm>

#include "base/checked_math.h"
#include "kernels/task_size.h"

namespace choral::kernels {
namespace {

constexpr int64_t kRowsAtOnce = 16;
constexpr int64_t kTasksPerThread = 4;
constexpr int64_t kLeastTask = 16384;  // products of numbers, a µs: for less no thread need come
// Columns of an expand that are one task: as many as threads have enough of, since B of them is one piece of memory, which a
// stream prefetcher likes long. 4096 are 64 KiB at rank 8.
constexpr int64_t kMostColumns = 4096, kFewestColumns = 64;

int64_t grain_of(int64_t units, int64_t products, int threads) {
  return std::max(units / (kTasksPerThread * threads), pieces_per_task(kLeastTask, products / std::max<int64_t>(units, 1)));
}

int64_t row_blocks(const LoRAShrink& s) { return ceil_div(s.x.rows, kRowsAtOnce); }
int64_t rank_blocks(const LoRAShrink& s) { return ceil_div(s.ranks(), LoRAMatrix::kShrinkRanks); }

// Units are numbered shrink by shrink, row block by row block, rank block by rank block. Neighbours in one row block are one
// call.
void run_units(CpuLevel level, const LoRAShrink& s, int64_t begin, int64_t end) {
  const int64_t across = rank_blocks(s);
  while (begin < end) {
    const int64_t block = begin / across, first = begin % across;
    const int64_t last = std::min(across, first + end - begin);
    const int64_t row = block * kRowsAtOnce, rows = std::min(kRowsAtOnce, s.x.rows - row);
    s.matrix->shrink(level, s.x.sub_rows(row, rows), s.factor, s.first_rank + first * LoRAMatrix::kShrinkRanks,
                     s.first_rank + std::min(last * LoRAMatrix::kShrinkRanks, s.ranks()), s.middle.sub_rows(row, rows));
    begin += last - first;
  }
}

}  // namespace

void lora_shrink(const Context& ctx, std::span<const LoRAShrink> shrinks) {
  int64_t units = 0, products = 0;
  for (const auto& s : shrinks) {
    units += row_blocks(s) * rank_blocks(s);
    products += s.x.rows * s.ranks() * s.matrix->in();
  }
  ctx.pool.parallel_for(units, grain_of(units, products, ctx.pool.size()), [&](int64_t begin, int64_t end, int) {
    int64_t first = 0;  // unit of the current shrink
    for (size_t i = 0; i < shrinks.size(); ++i) {
      const LoRAShrink& s = shrinks[i];
      const int64_t count = row_blocks(s) * rank_blocks(s);
      if (begin < first + count) {
        if (i + 1 < shrinks.size()) shrinks[i + 1].matrix->prefetch_shrink();
        const int64_t stop = std::min(end, first + count);
        run_units(ctx.level, s, begin - first, stop - first);
        begin = stop;
        if (begin == end) return;
      }
      first += count;
    }
  });
}

void lora_expand(const Context& ctx, std::span<const LoRAExpand> expands) {
  int64_t columns = 0;
  for (const auto& expand : expands) columns += expand.y.cols;
  const int64_t fair = ceil_div(columns, kTasksPerThread * ctx.pool.size());
  const int64_t at_once = std::clamp(round_up(fair, kFewestColumns), kFewestColumns, kMostColumns);
  const Arena::Mark mark(ctx.scratch);
  const auto ends = ctx.scratch.make<int64_t>(expands.size());  // units of all before and of this one
  int64_t units = 0, products = 0;
  for (size_t i = 0; i < expands.size(); ++i) {
    const auto& [terms, y, col] = expands[i];
    ends[i] = units += ceil_div(y.cols, at_once);
    for (const LoRATerm& term : terms) products += y.rows * y.cols * term.matrix->rank();
  }
  ctx.pool.parallel_for(units, grain_of(units, products, ctx.pool.size()), [&](int64_t begin, int64_t end, int) {
    auto i = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
    const auto column_of = [&](int64_t unit) { return (unit - (i == 0 ? 0 : ends[i - 1])) * at_once; };
    for (int64_t unit = begin; unit < end; ++unit) {
      const auto& [terms, y, first] = expands[i];
      const int64_t col = column_of(unit);
      while (i < expands.size() && unit + 1 >= ends[i]) ++i;
      if (i < expands.size()) expands[i].terms.front().matrix->prefetch_expand(expands[i].col + column_of(unit + 1));
      lora_expand(ctx.level, terms, first + col, y.sub_cols(col, std::min(at_once, y.cols - col)));
    }
  });
}

void lora_absorb(const Context& ctx, std::span<const LoRAAbsorb> items) {
  if (items.empty()) return;
  const Arena::Mark mark(ctx.scratch);
  int64_t rank = 0;
  for (const auto& item : items) {
    for (const LoRATerm& term : item.terms) rank = std::max(rank, term.matrix->rank());
  }
  const auto middles = ctx.scratch.make<float>(ctx.pool.size() * rank);
  const int64_t heads = items.front().columns.heads;
  ctx.pool.parallel_for(std::ssize(items) * heads, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const auto& [terms, columns, q, y] = items[unit / heads];
      const int64_t head = unit % heads, q_begin = head * (q.cols / heads), y_begin = head * (y.cols / heads);
      for (const LoRATerm& term : terms) {
        const auto& matrix = *term.matrix;
        const auto middle = middles.subspan(thread * rank, matrix.rank());
        for (int64_t i = 0; i < q.rows; ++i) {
          matrix.shrink_by_b(ctx.level, {q.row(i) + q_begin, static_cast<size_t>(columns.count)}, term.factor, columns.of(head),
                             middle);
          matrix.expand_by_a(ctx.level, middle, {y.row(i) + y_begin, static_cast<size_t>(matrix.in())});
        }
      }
    }
  });
}

}  // namespace choral::kernels
