// Rows that are sorted by group (the experts of a mixture), where the groups end. It is said in one of two ways that both exist
// in the field and look alike, so the type says which it is.
#pragma once

#include <cstdint>
#include <span>

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

}  // namespace choral::kernels
