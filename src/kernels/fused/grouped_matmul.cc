#include "kernels/fused/grouped_matmul.h"

namespace choral::kernels {

int64_t RowGroups::group_of(int64_t row) const {
  int64_t g = 0;
  for (GroupRows group = rows(0, 0); row >= group.end; group = rows(g, group.end)) ++g;
  return g;
}

bool RowGroups::covers(int64_t total) const {
  int64_t end = 0;
  for (int64_t g = 0; g < size(); ++g) {
    const GroupRows group = rows(g, end);
    if (group.end < group.begin || group.end > total) return false;
    end = group.end;
  }
  return end == total;
}

void grouped_matmul(const Context& ctx, MatrixView<const float> x, RowGroups groups, std::span<const PackedMatrix* const> weights,
                    MatrixView<float> y) {
  CHORAL_CHECK(groups.size() == std::ssize(weights) && groups.covers(x.rows) && y.rows == x.rows,
               "groups of rows fit x, y and the weights");
  int64_t end = 0;
  for (int64_t g = 0; g < groups.size(); ++g) {
    const GroupRows group = groups.rows(g, end);
    end = group.end;
    const int64_t count = group.end - group.begin;
    if (count > 0) weights[g]->multiply(ctx, x.sub_rows(group.begin, count), {}, y.sub_rows(group.begin, count));
  }
}

void grouped_matmul_quantised(const Context& ctx, const QuantisedRows& x, RowGroups groups,
                              std::span<const PackedMatrix* const> weights, MatrixView<float> y) {
  CHORAL_CHECK(groups.size() == std::ssize(weights) && groups.covers(y.rows), "groups of rows fit y and the weights");
  int64_t end = 0;
  for (int64_t g = 0; g < groups.size(); ++g) {
    const GroupRows group = groups.rows(g, end);
    end = group.end;
    const int64_t count = group.end - group.begin;
    if (count > 0) weights[g]->multiply_quantised(ctx, x.sub_rows(group.begin, count), {}, y.sub_rows(group.begin, count));
  }
}

}  // namespace choral::kernels
