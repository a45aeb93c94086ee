// y rows of group g = x rows of group g · W_gᵀ: the experts of a mixture, whose rows were sorted by expert.
// Where the groups end is said in one of two ways that both exist in the field and look alike, so the type says which it is.
// Each group is one multiply() of its PackedMatrix, with its bits; empty groups cost nothing. Pure functions; see PackedMatrix
// for threads and scratch.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/gemm/packed_matrix.h"

namespace choral::kernels {

struct GroupCounts {
  std::span<const int64_t> rows;  // rows[g] of group g, each >= 0; their sum is x.rows
};
struct GroupEnds {
  std::span<const int64_t> ends;  // group g is rows [ends[g - 1], ends[g]); the last one is x.rows
};

// Rows [begin, end) of group g, whichever way it is said. For kernels that take groups.
struct GroupRows {
  int64_t begin, end;
};
class RowGroups {
 public:
  RowGroups(GroupCounts counts) : values_(counts.rows), cumulative_(false) {}  // NOLINT: a group list is either of the two
  RowGroups(GroupEnds ends) : values_(ends.ends), cumulative_(true) {}         // NOLINT

  int64_t size() const { return std::ssize(values_); }
  // The rows of group g, given where group g - 1 ended (0 for the first).
  GroupRows rows(int64_t g, int64_t previous_end) const {
    return {previous_end, cumulative_ ? values_[g] : previous_end + values_[g]};
  }
  // Which group row `row` of all is in; the row is in one. Takes the time of size().
  int64_t group_of(int64_t row) const;
  // Whether each group has no fewer than 0 rows and all together `rows`.
  bool covers(int64_t rows) const;

 private:
  std::span<const int64_t> values_;
  bool cumulative_;
};

// weights [groups], each [n, k]; x [m, k] → y [m, n]. A null weight is allowed for an empty group.
void grouped_matmul(const Context& ctx, MatrixView<const float> x, RowGroups groups, std::span<const PackedMatrix* const> weights,
                    MatrixView<float> y);

// The same of an x that was quantised as each group's quantised_input() wants it.
void grouped_matmul_quantised(const Context& ctx, const QuantisedRows& x, RowGroups groups,
                              std::span<const PackedMatrix* const> weights, MatrixView<float> y);

}  // namespace choral::kernels
