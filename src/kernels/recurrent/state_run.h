// What a layer keeps of a sequence that does not grow with it: a slot of floats in one array for all sequences. A step says in
// runs of rows which slot each run begins with and into which one it ends; so a state can be continued in its place, begun from
// nothing, or taken from a slot that others keep. docs/design/state-cache.md
#pragma once

#include <cstdint>
#include <span>

#include "base/check.h"

namespace choral::kernels {

inline constexpr int32_t kNoState = -1;  // zeros

// Consecutive rows of one sequence, at least one. A run that begins with the slot into which the one before it ended goes on with
// its sequence; all others are independent of each other.
struct StateRun {
  int32_t first_row = 0;
  int32_t row_count = 0;
  int32_t from = kNoState;  // the slot that holds the state before the first row, or kNoState
  int32_t to = 0;           // the slot that gets the state behind the last row
};

// The slots of one layer, or a part of each.
struct StateView {
  float* data = nullptr;
  int64_t slots = 0;
  int64_t stride = 0;  // floats from slot to slot

  float* at(int32_t slot) const { return data + slot * stride; }
  StateView from(int64_t begin) const { return {data + begin, slots, stride}; }
};

// A run that is none would write beyond the slots.
inline void check_runs(std::span<const StateRun> runs, const StateView& slots, int64_t rows) {
  for (const StateRun& run : runs) {
    CHORAL_CHECK(run.first_row >= 0 && run.row_count > 0 && int64_t{run.first_row} + run.row_count <= rows &&
                     run.from >= kNoState && run.from < slots.slots && run.to >= 0 && run.to < slots.slots,
                 "a run is of the step's rows and goes from slot to slot");
  }
}

// How many runs from `first` on are one sequence's.
inline int64_t runs_of_sequence(std::span<const StateRun> runs, int64_t first) {
  int64_t end = first + 1;
  while (end < std::ssize(runs) && runs[end].from != kNoState && runs[end].from == runs[end - 1].to) ++end;
  return end - first;
}

}  // namespace choral::kernels
