#include "layers/rank_share.h"

namespace choral::layers {

HeadShare share_heads(const Ranks& ranks, int64_t heads, int64_t groups) {
  const int64_t of_group = heads / groups, sharing = ranks.count / groups;  // heads, ranks
  const bool by_groups = groups >= ranks.count;
  HeadShare share{{0, heads}, {0, groups}};
  if (ranks.count == 1 || (!by_groups && (ranks.count % groups != 0 || of_group < sharing))) return share;
  if (by_groups) {
    share.begins = share_begins(groups, 1, ranks.count);
    share.groups = share_of(share.begins, ranks.rank);
    for (int64_t& begin : share.begins) begin *= of_group;
  } else {
    share.groups = {ranks.rank / sharing, 1};
    for (int64_t r = 0; r < ranks.count; ++r) share.begins.push_back(r / sharing * of_group + r % sharing * of_group / sharing);
    share.begins.push_back(heads);
  }
  share.heads = share_of(share.begins, ranks.rank);
  return share;
}

HeadShare share_heads(const Ranks& ranks, int64_t heads, int64_t groups, FunctionRef<bool(const HeadShare&)> may_own) {
  for (int rank = 0; rank < ranks.count; ++rank) {
    const HeadShare share = share_heads({rank, ranks.count}, heads, groups);
    if (share.begins.empty() || !may_own(share)) return share_heads({}, heads, groups);
  }
  return share_heads(ranks, heads, groups);
}

std::vector<int64_t> column_begins(const HeadShare& share, int64_t width) {
  std::vector<int64_t> begins;
  for (const int64_t head : share.begins) begins.push_back(head * width);
  return begins;
}

}  // namespace choral::layers
