#include "kernels/lora/lora_batch.h"

#include <algorithm>

#include "base/checked_math.h"

namespace choral::kernels {
namespace {

constexpr int64_t kRowsAtOnce = 16;
constexpr int64_t kTasksPerThread = 4;
constexpr int64_t kColumnsAtOnce =
    4096;  // B of so many columns is one piece of memory: 64 KiB at rank 8, for the stream prefetcher

int64_t row_blocks(const LoRAShrink& s) { return ceil_div(s.x.rows, kRowsAtOnce); }
int64_t rank_blocks(const LoRAShrink& s) { return ceil_div(s.matrix->rank(), LoRAMatrix::kShrinkRanks); }

// Units are numbered shrink by shrink, row block by row block, rank block by rank block. Neighbours in one row block are one
// call.
void run_units(CpuLevel level, const LoRAShrink& s, int64_t begin, int64_t end) {
  const int64_t across = rank_blocks(s);
  while (begin < end) {
    const int64_t block = begin / across, first = begin % across;
    const int64_t last = std::min(across, first + end - begin);
    const int64_t row = block * kRowsAtOnce, rows = std::min(kRowsAtOnce, s.x.rows - row);
    s.matrix->shrink(level, s.x.sub_rows(row, rows), s.factor, first * LoRAMatrix::kShrinkRanks,
                     std::min(last * LoRAMatrix::kShrinkRanks, s.matrix->rank()), s.middle.sub_rows(row, rows));
    begin += last - first;
  }
}

}  // namespace

void lora_shrink(const Context& ctx, std::span<const LoRAShrink> shrinks) {
  int64_t units = 0;
  for (const auto& s : shrinks) units += row_blocks(s) * rank_blocks(s);
  const int64_t grain = std::max<int64_t>(1, units / (kTasksPerThread * ctx.pool.size()));
  ctx.pool.parallel_for(units, grain, [&](int64_t begin, int64_t end, int) {
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
  if (expands.empty()) return;
  const int64_t blocks = ceil_div(expands.front().y.cols, kColumnsAtOnce);  // all have as many
  const auto units = std::ssize(expands) * blocks;
  const int64_t grain = std::max<int64_t>(1, units / (kTasksPerThread * ctx.pool.size()));
  ctx.pool.parallel_for(units, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const auto& [terms, y, first] = expands[unit / blocks];
      if (unit + 1 < units) {
        const auto& next = expands[(unit + 1) / blocks];
        next.terms.front().matrix->prefetch_expand(next.col + (unit + 1) % blocks * kColumnsAtOnce);
      }
      const int64_t col = unit % blocks * kColumnsAtOnce;
      lora_expand(ctx.level, terms, first + col, y.sub_cols(col, std::min(kColumnsAtOnce, y.cols - col)));
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
