#include "kernels/fused/row_groups.h"

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

}  // namespace choral::kernels
