#include "kernels/lora/lora_stack.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked_math.h"
#include "base/float16.h"
#include "kernels/lora/lora_micro.h"
#include "kernels/quant/dequantise.h"

namespace choral::kernels {
namespace {

constexpr int64_t kRowsPerTask = 32;    // of one group
constexpr int64_t kPanelBytes = 16384;  // of panels of B in a task: they stay in L1
constexpr int64_t kMaxPanels = 8;
constexpr int64_t kTaskWork = 1 << 16;  // multiply-adds that are worth another thread: a few µs

void store(DType type, const float* values, int64_t count, std::byte* out) {
  if (type == DType::kF32) {
    std::memcpy(out, values, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  auto* bits = reinterpret_cast<uint16_t*>(out);
  for (int64_t i = 0; i < count; ++i) bits[i] = type == DType::kF16 ? to_float16(values[i]).bits : to_bfloat16(values[i]).bits;
}

// The values as floats, rounded to `as` first; zeros up to `padded`.
void widen(DType type, DType as, const std::byte* values, int64_t count, int64_t padded, float* out) {
  dequantise_row(type, values, count, out);
  if (as == DType::kF16 && as != type) {
    for (int64_t i = 0; i < count; ++i) out[i] = to_float(to_float16(out[i]));
  } else if (as == DType::kBF16 && as != type) {
    for (int64_t i = 0; i < count; ++i) out[i] = to_float(to_bfloat16(out[i]));
  }
  std::fill(out + count, out + padded, 0.0F);
}

// Rows [begin, end) of the sorted rows, all of `adapter`, and columns of the result from `column` on.
struct Task {
  int64_t adapter;
  int64_t begin, end;
  int64_t column;
};

// One of the two operations. A task widens its part of the adapter's weights once, for all of its rows.
class StackProduct {
 public:
  StackProduct(const Context& ctx, const LoRAGroups& groups, TensorView inputs, const LoRAStack& stack, int64_t columns,
               int64_t output_begin, MutableTensorView output)
      : ctx_(ctx), groups_(groups), stack_(stack), columns_(columns), output_begin_(output_begin), output_(output) {
    const int64_t rows = std::ssize(groups.rows);
    inputs_ = ctx.scratch.make<float>(rows * padded_cols()).data();
    ctx.pool.parallel_for(rows, grain(rows, rows * stack.cols), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        widen(inputs.dtype, output.dtype, inputs.row(groups.rows[i].input), stack.cols, padded_cols(),
              inputs_ + i * padded_cols());
      }
    });
  }

  // output[row, :columns] = scaling · inputs[row]·Aᵀ
  void shrink(float scaling) const {
    std::array<float, kLoRAGroup> scale;
    scale.fill(scaling);
    const int64_t rank_bytes = padded_cols() * int64_t{sizeof(float)};
    for_each_task(kLoRAGroup, kLoRAGroup * padded_cols(), [&](const Task& task, float* a) {
      const int64_t ranks = std::min(kLoRAGroup, columns_ - task.column);
      for (int64_t p = 0; p < ranks; ++p) widen_weights(task.adapter, task.column + p, padded_cols(), a + p * padded_cols());
      alignas(64) float sums[kMaxShrinkRows][kLoRAGroup];
      std::array<const float*, kMaxShrinkRows> x{};
      for (int64_t i = task.begin; i < task.end;) {
        const int tile = kernels_.shrink_rows(task.end - i);
        for (int r = 0; r < tile; ++r) x[r] = inputs_ + (i + r) * padded_cols();
        for (int64_t p = 0; p < ranks;) {
          const int at_once = LoRAKernels::shrink_ranks(tile, ranks - p);
          const ShrinkArgs args{.a = reinterpret_cast<const std::byte*>(a + p * padded_cols()),
                                .rank_bytes = rank_bytes,
                                .chunk_bytes = chunk_bytes(LoRAStore::kF32),
                                .chunks = padded_cols() / kLoRAChunk,
                                .a_tail = nullptr,
                                .a_tail_rank_bytes = 0,
                                .ahead = 0,
                                .x = x.data(),
                                .x_tail = nullptr,
                                .scale = scale.data(),
                                .out = &sums[0][p],
                                .out_stride = kLoRAGroup};
          kernels_.shrink(LoRAStore::kF32, tile, at_once)(args);
          p += at_once;
        }
        for (int r = 0; r < tile; ++r) put(i + r, task.column, sums[r], ranks, false);
        i += tile;
      }
    });
  }

  // output[row, output_begin : output_begin + columns] (+)= inputs[row]·Bᵀ
  void expand(bool add) const {
    const int64_t panel = stack_.cols * kLoRAColumns;  // floats: [rank][16]
    const int64_t at_once = std::clamp<int64_t>(kPanelBytes / (panel * 4), 1, kMaxPanels);
    for_each_task(at_once * kLoRAColumns, at_once * panel + stack_.cols, [&](const Task& task, float* b) {
      const int64_t columns = std::min(at_once * kLoRAColumns, columns_ - task.column), panels = ceil_div(columns, kLoRAColumns);
      float* row = b + at_once * panel;
      for (int64_t c = 0; c < panels * kLoRAColumns; ++c) {
        float* to = b + c / kLoRAColumns * panel + c % kLoRAColumns;
        if (c < columns) widen_weights(task.adapter, task.column + c, stack_.cols, row);
        for (int64_t j = 0; j < stack_.cols; ++j) to[j * kLoRAColumns] = c < columns ? row[j] : 0.0F;
      }
      alignas(64) float sums[kMaxExpandRows][kMaxPanels * kLoRAColumns];
      std::array<float*, kMaxExpandRows> y{};
      for (int r = 0; r < kMaxExpandRows; ++r) y[r] = sums[r];
      for (int64_t i = task.begin; i < task.end;) {
        const int tile = LoRAKernels::expand_rows(task.end - i);
        kernels_.expand(LoRAStore::kF32, tile)({.b = reinterpret_cast<const std::byte*>(b),
                                                .panel_bytes = panel * 4,
                                                .panels = panels,
                                                .rank = stack_.cols,
                                                .middle = inputs_ + i * padded_cols(),
                                                .middle_stride = padded_cols(),
                                                .y = y.data(),
                                                .accumulate = false});
        for (int r = 0; r < tile; ++r) put(i + r, task.column, sums[r], columns, add);
        i += tile;
      }
    });
  }

 private:
  int64_t padded_cols() const { return round_up(stack_.cols, kLoRAChunk); }

  // Some eight shares a thread, none too small to be worth its hand-over.
  int64_t grain(int64_t tasks, int64_t work) const {
    const int64_t worthwhile = ceil_div(tasks * kTaskWork, std::max<int64_t>(work, 1));
    return std::max<int64_t>({1, tasks / (8 * ctx_.pool.size()), worthwhile});
  }

  // run(task, a thread's own `floats`), for tasks of so many columns.
  template <class Run>
  void for_each_task(int64_t columns_per_task, int64_t floats, Run run) const {
    const int64_t across = ceil_div(columns_, columns_per_task);
    int64_t count = 0;
    for (const LoRAGroup& g : groups_.groups) count += ceil_div(g.count, kRowsPerTask) * across;
    const std::span<Task> tasks = ctx_.scratch.make<Task>(count);
    size_t next = 0;
    for (const LoRAGroup& g : groups_.groups) {
      for (int64_t t = 0; t < across; ++t) {
        for (int64_t row = 0; row < g.count; row += kRowsPerTask) {
          tasks[next++] = {g.adapter, g.begin + row, g.begin + std::min(row + kRowsPerTask, g.count), t * columns_per_task};
        }
      }
    }
    float* own = ctx_.scratch.make<float>(ctx_.pool.size() * floats).data();
    const int64_t work = std::ssize(groups_.rows) * stack_.cols * columns_;
    ctx_.pool.parallel_for(count, grain(count, work), [&](int64_t begin, int64_t end, int thread) {
      for (int64_t t = begin; t < end; ++t) run(tasks[t], own + thread * floats);
    });
  }

  void widen_weights(int64_t adapter, int64_t row, int64_t padded, float* out) const {
    widen(stack_.dtype, output_.dtype, stack_.row(adapter, row), stack_.cols, padded, out);
  }

  // Of sorted row i: one rounding.
  void put(int64_t i, int64_t column, const float* sums, int64_t count, bool add) const {
    const int64_t element = groups_.rows[i].output * output_.shape[1] + output_begin_ + column;
    std::byte* out = output_.data + element * row_bytes(output_.dtype, 1);
    if (!add) return store(output_.dtype, sums, count, out);
    float total[kMaxPanels * kLoRAColumns];
    dequantise_row(output_.dtype, out, count, total);
    for (int64_t c = 0; c < count; ++c) total[c] += sums[c];
    store(output_.dtype, total, count, out);
  }

  const Context& ctx_;
  const LoRAGroups& groups_;
  const LoRAStack& stack_;
  int64_t columns_, output_begin_;
  MutableTensorView output_;
  const LoRAKernels& kernels_ = lora_kernels(ctx_.level);
  float* inputs_;  // [sorted rows][padded]
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
  if (columns > 0 && !groups.groups.empty()) StackProduct(ctx, groups, inputs, a, columns, 0, output).shrink(scaling);
}

void expand_stack(const Context& ctx, const LoRAGroups& groups, TensorView inputs, const LoRAStack& b, bool add,
                  int64_t output_begin, int64_t columns, MutableTensorView output) {
  if (columns > 0 && !groups.groups.empty()) StackProduct(ctx, groups, inputs, b, columns, output_begin, output).expand(add);
}

}  // namespace choral::kernels
