#include "kernels/lora/lora_stack.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked_math.h"
#include "kernels/lora/lora_micro.h"
#include "kernels/lora/lora_stack_micro.h"

namespace choral::kernels {
namespace {

constexpr int64_t kRankBlock = 8;       // ranks of a shrink task
constexpr int64_t kRowsPerTask = 32;    // of one group
constexpr int64_t kPanelBytes = 16384;  // of turned panels of B in a task: they stay in L1
constexpr int64_t kMaxPanels = 8;
constexpr int64_t kAheadBytesOfRow = 768;  // fetched meanwhile: of each of a block's ranks
constexpr int64_t kTaskWork = 1 << 16;     // multiply-adds that are worth another thread: a few µs

// A piece of work: rows [begin, end) of the sorted rows, all of `adapter`, and outputs from `column` on.
struct Task {
  int64_t adapter;
  int64_t begin, end;
  int64_t column;
};

std::span<const Task> cut(const LoRAGroups& groups, int64_t columns, int64_t columns_per_task, Arena& scratch) {
  const int64_t across = ceil_div(columns, columns_per_task);
  int64_t count = 0;
  for (const LoRAGroup& g : groups.groups) count += ceil_div(g.count, kRowsPerTask) * across;
  const std::span<Task> tasks = scratch.make<Task>(count);
  size_t next = 0;
  for (const LoRAGroup& g : groups.groups) {
    for (int64_t t = 0; t < across; ++t) {
      for (int64_t row = 0; row < g.count; row += kRowsPerTask) {
        tasks[next++] = {g.adapter, g.begin + row, g.begin + std::min(row + kRowsPerTask, g.count), t * columns_per_task};
      }
    }
  }
  return tasks;
}

// Some eight shares a thread, none too small to be worth its hand-over.
int64_t grain(int64_t tasks, int64_t work, const ThreadPool& pool) {
  const int64_t worthwhile = ceil_div(tasks * kTaskWork, std::max<int64_t>(work, 1));
  return std::max<int64_t>({1, tasks / (8 * pool.size()), worthwhile});
}

bool is_exact(DType from, DType as) { return from == as || as == DType::kF32; }

LoRAStore stored(DType type) {
  return type == DType::kF32 ? LoRAStore::kF32 : type == DType::kF16 ? LoRAStore::kF16 : LoRAStore::kPlainBF16;
}

struct FloatRows {
  const float* data;
  int64_t stride;
  bool sorted;  // row i of the sorted rows; else of inputs
  const float* row(const LoRAGroups& groups, int64_t i) const { return data + (sorted ? i : groups.rows[i].input) * stride; }
};

// inputs as float in the output's precision: themselves if they are that already.
FloatRows prepare(const Context& ctx, const LoRAGroups& groups, TensorView inputs, DType as) {
  const int64_t cols = inputs.cols(), rows = std::ssize(groups.rows);
  const bool aligned = reinterpret_cast<uintptr_t>(inputs.data) % alignof(float) == 0;
  if (inputs.dtype == DType::kF32 && as == DType::kF32 && aligned)
    return {reinterpret_cast<const float*>(inputs.data), cols, false};
  float* out = ctx.scratch.make<float>(rows * cols).data();
  const LoRAStackKernels& kernels = lora_stack_kernels(ctx.level);
  ctx.pool.parallel_for(rows, grain(rows, rows * cols, ctx.pool), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      kernels.widen_row(inputs.dtype, as, inputs.row(groups.rows[i].input), cols, out + i * cols);
    }
  });
  return {out, cols, true};
}

// Up to eight rows of A as shrink wants them: where they are, or rounded to the output's type.
struct RankBlock {
  LoRAStore store;
  const std::byte* data;
  int64_t rank_bytes;
  const std::byte* tail;  // [ranks][32], zeros beyond `in`; null if in is a multiple of 32
};

class Shrink {
 public:
  Shrink(const Context& ctx, const LoRAGroups& groups, TensorView inputs, const LoRAStack& a, float scaling, int64_t columns,
         MutableTensorView output)
      : ctx_(ctx), groups_(groups), a_(a), columns_(columns), output_(output), x_(prepare(ctx, groups, inputs, output.dtype)) {
    scale_.fill(scaling);
    if (!is_exact(a.dtype, output.dtype)) {
      rounded_ = ctx.scratch.make<float>(ctx.pool.size() * kRankBlock * padded_in()).data();
    }
  }

  void run() {
    const auto tasks = cut(groups_, columns_, kRankBlock, ctx_.scratch);
    const auto count = std::ssize(tasks);
    const int64_t work = std::ssize(groups_.rows) * a_.cols * columns_;
    ctx_.pool.parallel_for(count, grain(count, work, ctx_.pool), [&](int64_t begin, int64_t end, int thread) {
      for (int64_t t = begin; t < end; ++t) run_task(tasks[t], thread);
    });
  }

 private:
  int64_t padded_in() const { return round_up(a_.cols, kLoRAChunk); }
  int64_t chunks() const { return a_.cols / kLoRAChunk; }

  RankBlock rank_block(const Task& task, int64_t ranks, int thread, std::byte* tails) const {
    const int64_t rest = a_.cols - chunks() * kLoRAChunk;
    if (rounded_ != nullptr) {
      float* own = rounded_ + thread * kRankBlock * padded_in();
      for (int64_t p = 0; p < ranks; ++p) {
        float* to = own + p * padded_in();
        stack_kernels_.widen_row(a_.dtype, output_.dtype, a_.row(task.adapter, task.column + p), a_.cols, to);
        std::fill(to + a_.cols, to + padded_in(), 0.0F);
      }
      const auto* data = reinterpret_cast<const std::byte*>(own);
      return {LoRAStore::kF32, data, padded_in() * 4, rest == 0 ? nullptr : data + chunks() * kLoRAChunk * 4};
    }
    const LoRAStore store = stored(a_.dtype);
    const int64_t value = value_bytes(store);
    const RankBlock block{store, a_.row(task.adapter, task.column), a_.row_bytes, rest == 0 ? nullptr : tails};
    for (int64_t p = 0; p < ranks && rest != 0; ++p) {
      std::byte* to = tails + p * kLoRAChunk * value;
      std::memcpy(to, block.data + p * block.rank_bytes + chunks() * kLoRAChunk * value, rest * value);
      std::memset(to + rest * value, 0, (kLoRAChunk - rest) * value);
    }
    return block;
  }

  void run_task(const Task& task, int thread) const {
    const int64_t ranks = std::min(kRankBlock, columns_ - task.column);
    alignas(64) std::byte tails[kRankBlock * kLoRAChunk * sizeof(float)];
    const RankBlock block = rank_block(task, ranks, thread, tails);
    const int64_t value = value_bytes(block.store);
    alignas(64) float x_tails[kMaxShrinkRows][kLoRAChunk];
    alignas(64) float sums[kMaxShrinkRows][kRankBlock];
    std::array<const float*, kMaxShrinkRows> x{}, x_tail{};
    for (int64_t i = task.begin; i < task.end;) {
      const int tile = kernels_.shrink_rows(task.end - i);
      for (int r = 0; r < tile; ++r) {
        x[r] = x_.row(groups_, i + r);
        x_tail[r] = x_tails[r];
        if (block.tail != nullptr) {
          std::fill(std::copy(x[r] + chunks() * kLoRAChunk, x[r] + a_.cols, x_tails[r]), std::end(x_tails[r]), 0.0F);
        }
      }
      for (int64_t p = 0; p < ranks;) {
        const int at_once = LoRAKernels::shrink_ranks(tile, ranks - p);
        const int64_t tail_bytes = rounded_ != nullptr ? block.rank_bytes : kLoRAChunk * value;
        const ShrinkArgs args{.a = block.data + p * block.rank_bytes,
                              .rank_bytes = block.rank_bytes,
                              .chunk_bytes = kLoRAChunk * value,
                              .chunks = chunks(),
                              .a_tail = block.tail == nullptr ? nullptr : block.tail + p * tail_bytes,
                              .a_tail_rank_bytes = tail_bytes,
                              .ahead = kAheadBytesOfRow,
                              .x = x.data(),
                              .x_tail = x_tail.data(),
                              .scale = scale_.data(),
                              .out = &sums[0][p],
                              .out_stride = kRankBlock};
        kernels_.shrink(block.store, tile, at_once)(args);
        p += at_once;
      }
      for (int r = 0; r < tile; ++r) {
        const int64_t row = groups_.rows[i + r].output;
        std::byte* out = output_.data + (row * output_.shape[1] + task.column) * output_value_;
        stack_kernels_.finish_row(output_.dtype, sums[r], ranks, false, out);
      }
      i += tile;
    }
  }

  const Context& ctx_;
  const LoRAGroups& groups_;
  const LoRAStack& a_;
  int64_t columns_;
  MutableTensorView output_;
  int64_t output_value_ = row_bytes(output_.dtype, 1);
  FloatRows x_;
  const LoRAKernels& kernels_ = lora_kernels(ctx_.level);
  const LoRAStackKernels& stack_kernels_ = lora_stack_kernels(ctx_.level);
  std::array<float, kRankBlock> scale_{};
  float* rounded_ = nullptr;  // a thread's [8][in, padded]
};

class Expand {
 public:
  Expand(const Context& ctx, const LoRAGroups& groups, TensorView inputs, const LoRAStack& b, bool add, int64_t output_begin,
         int64_t columns, MutableTensorView output)
      : ctx_(ctx), groups_(groups), b_(b), add_(add), output_begin_(output_begin), columns_(columns), output_(output) {
    // All of it is small: tokens × r.
    middle_ = ctx.scratch.make<float>(groups.rows.size() * static_cast<size_t>(b.cols)).data();
    for (size_t i = 0; i < groups.rows.size(); ++i) {
      stack_kernels_.widen_row(inputs.dtype, output.dtype, inputs.row(groups.rows[i].input), b.cols,
                               middle_ + static_cast<int64_t>(i) * b.cols);
    }
    panels_per_task_ = std::clamp<int64_t>(kPanelBytes / panel_bytes(), 1, kMaxPanels);
    panels_ = ctx.scratch.make<float>(ctx.pool.size() * panels_per_task_ * panel_bytes() / 4).data();
  }

  void run() {
    const auto tasks = cut(groups_, columns_, panels_per_task_ * kLoRAColumns, ctx_.scratch);
    const auto count = std::ssize(tasks);
    const int64_t work = std::ssize(groups_.rows) * b_.cols * columns_;
    ctx_.pool.parallel_for(count, grain(count, work, ctx_.pool), [&](int64_t begin, int64_t end, int thread) {
      for (int64_t t = begin; t < end; ++t) run_task(tasks[t], panels_ + thread * panels_per_task_ * panel_bytes() / 4);
    });
  }

 private:
  int64_t panel_bytes() const { return round_up(b_.cols, 8) * kLoRAColumns * 4; }

  // The 16 rows of B that give the task's panel p, asking for those to come.
  std::array<const std::byte*, kLoRAColumns> columns_of(const Task& task, int64_t p, int64_t columns) const {
    std::array<const std::byte*, kLoRAColumns> rows{};
    const std::byte* first = b_.row(task.adapter, task.column + p * kLoRAColumns);
    const int64_t last = std::min(kLoRAColumns, columns - p * kLoRAColumns) - 1;  // columns beyond repeat it and are dropped
    for (int64_t c = 0; c < kLoRAColumns; ++c) rows[c] = first + std::min(c, last) * b_.row_bytes;
    for (int64_t i = 0; i < kLoRAColumns * b_.row_bytes; i += 64) __builtin_prefetch(first + kLoRAAheadBytes + i);
    return rows;
  }

  void run_task(const Task& task, float* panels) const {
    const int64_t columns = std::min(panels_per_task_ * kLoRAColumns, columns_ - task.column);
    if (task.end - task.begin == 1) return run_row(task, columns);
    const int64_t count = ceil_div(columns, kLoRAColumns);
    for (int64_t p = 0; p < count; ++p) {
      const auto rows = columns_of(task, p, columns);
      stack_kernels_.turn_panel(b_.dtype, output_.dtype, rows.data(), b_.cols, panels + p * panel_bytes() / 4);
    }
    const bool direct = output_.dtype == DType::kF32 && columns % kLoRAColumns == 0;
    alignas(64) float sums[kMaxExpandRows][kMaxPanels * kLoRAColumns];
    std::array<float*, kMaxExpandRows> y{};
    for (int64_t i = task.begin; i < task.end;) {
      const int tile = LoRAKernels::expand_rows(task.end - i);
      for (int r = 0; r < tile; ++r) y[r] = direct ? reinterpret_cast<float*>(output_at(i + r, task.column)) : sums[r];
      const ExpandArgs args{.b = reinterpret_cast<const std::byte*>(panels),
                            .panel_bytes = panel_bytes(),
                            .panels = count,
                            .rank = b_.cols,
                            .middle = middle_ + i * b_.cols,
                            .middle_stride = b_.cols,
                            .y = y.data(),
                            .accumulate = direct && add_};
      kernels_.expand(LoRAStore::kF32, tile)(args);
      for (int r = 0; r < tile && !direct; ++r) {
        stack_kernels_.finish_row(output_.dtype, sums[r], columns, add_, output_at(i + r, task.column));
      }
      i += tile;
    }
  }

  void run_row(const Task& task, int64_t columns) const {
    alignas(64) float sums[kMaxPanels * kLoRAColumns];
    for (int64_t p = 0; p < ceil_div(columns, kLoRAColumns); ++p) {
      const auto rows = columns_of(task, p, columns);
      stack_kernels_.expand_row(b_.dtype, output_.dtype, rows.data(), b_.cols, middle_ + task.begin * b_.cols,
                                sums + p * kLoRAColumns);
    }
    stack_kernels_.finish_row(output_.dtype, sums, columns, add_, output_at(task.begin, task.column));
  }

  std::byte* output_at(int64_t i, int64_t column) const {
    const int64_t row = groups_.rows[i].output;
    return output_.data + (row * output_.shape[1] + output_begin_ + column) * output_value_;
  }

  const Context& ctx_;
  const LoRAGroups& groups_;
  const LoRAStack& b_;
  bool add_;
  int64_t output_begin_, columns_;
  MutableTensorView output_;
  int64_t output_value_ = row_bytes(output_.dtype, 1);
  const LoRAKernels& kernels_ = lora_kernels(ctx_.level);
  const LoRAStackKernels& stack_kernels_ = lora_stack_kernels(ctx_.level);
  float* middle_ = nullptr;  // [sorted rows][r]
  float* panels_ = nullptr;  // a thread's [panels][r, rounded to 8][16]
  int64_t panels_per_task_ = 1;
};

}  // namespace

LoRAGroups group_rows(std::span<const int64_t> indices, int64_t output_rows, int64_t adapters, Arena& scratch) {
  const bool broadcast = indices.size() == 1;
  const auto index = [&](int64_t row) { return indices[broadcast ? 0 : static_cast<size_t>(row)]; };
  const std::span<int64_t> begin = scratch.make<int64_t>(static_cast<size_t>(adapters) + 1);
  std::fill(begin.begin(), begin.end(), 0);
  for (int64_t row = 0; row < output_rows; ++row) {
    if (index(row) >= 0) ++begin[static_cast<size_t>(index(row)) + 1];
  }
  int64_t distinct = 0;
  for (size_t a = 1; a < begin.size(); ++a) {
    distinct += begin[a] != 0;
    begin[a] += begin[a - 1];
  }
  const std::span<LoRAGroup> groups = scratch.make<LoRAGroup>(distinct);
  size_t next = 0;
  for (size_t a = 0; a + 1 < begin.size(); ++a) {
    if (begin[a + 1] != begin[a]) groups[next++] = {static_cast<int64_t>(a), begin[a], begin[a + 1] - begin[a]};
  }
  const std::span<LoRARow> rows = scratch.make<LoRARow>(begin.back());
  for (int64_t row = 0; row < output_rows; ++row) {
    if (index(row) >= 0) rows[begin[index(row)]++] = {broadcast ? 0 : row, row};
  }
  return {rows, groups};
}

void shrink_stack(const Context& ctx, const LoRAGroups& groups, TensorView inputs, const LoRAStack& a, float scaling,
                  int64_t columns, MutableTensorView output) {
  if (columns > 0 && !groups.groups.empty()) Shrink(ctx, groups, inputs, a, scaling, columns, output).run();
}

void expand_stack(const Context& ctx, const LoRAGroups& groups, TensorView inputs, const LoRAStack& b, bool add,
                  int64_t output_begin, int64_t columns, MutableTensorView output) {
  if (columns > 0 && !groups.groups.empty()) Expand(ctx, groups, inputs, b, add, output_begin, columns, output).run();
}

}  // namespace choral::kernels
