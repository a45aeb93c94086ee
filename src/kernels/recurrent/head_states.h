// The matrices that a layer's heads keep of a sequence, and how a step's runs go over them. A head's matrix lies in blocks of so
// many value columns (the last may be narrower), each [key_dim, columns]: what a task works on is one piece, which stays in a
// core's cache while the tokens of a step run over it. Neither runs nor threads change a bit (invariant 1).
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "base/checked_math.h"
#include "kernels/context.h"
#include "kernels/recurrent/state_run.h"

namespace choral::kernels {

struct HeadStates {
  int64_t heads = 0, key_dim = 0, value_dim = 0;

  static constexpr int64_t kBlockColumns = 32;

  int64_t floats() const { return heads * key_dim * value_dim; }
  int64_t blocks_of_head() const { return ceil_div(value_dim, kBlockColumns); }
  int64_t block_begin(int64_t head, int64_t column) const { return (head * value_dim + column) * key_dim; }
  int64_t block_columns(int64_t column) const { return std::min(kBlockColumns, value_dim - column); }
};

// Beyond 20 it is x to the last bit.
inline float softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

// One block and the rows that it meets, in order: update(state, row, head, column, columns) changes the block that begins with
// value column `column` of `head`.
template <class Update>
void run_block(const HeadStates& shape, StateView states, const StateRun& run, int64_t head, int64_t column, Update& update) {
  const int64_t columns = shape.block_columns(column), begin = shape.block_begin(head, column), size = shape.key_dim * columns;
  float* state = states.at(run.to) + begin;
  if (run.from == kNoState) {
    std::fill_n(state, size, 0.0F);
  } else if (run.from != run.to) {
    std::copy_n(states.at(run.from) + begin, size, state);
  }
  for (int64_t row = run.first_row; row < run.first_row + run.row_count; ++row) update(state, row, head, column, columns);
}

// All blocks of all heads over all runs. states: shape.floats() a slot.
template <class Update>
void run_head_states(const Context& ctx, const HeadStates& shape, StateView states, std::span<const StateRun> runs,
                     Update update) {
  const int64_t blocks = shape.blocks_of_head(), pieces = shape.heads * blocks;
  ctx.pool.parallel_for(pieces * std::ssize(runs), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task / pieces, head = task % pieces / blocks, block = task % blocks;
      if (first > 0 && runs_of_sequence(runs, first - 1) > 1) continue;  // goes with the one before
      for (const StateRun& run : runs.subspan(first, runs_of_sequence(runs, first))) {
        run_block(shape, states, run, head, block * HeadStates::kBlockColumns, update);
      }
    }
  });
}

}  // namespace choral::kernels
