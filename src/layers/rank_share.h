// How a model is divided over ranks: each has some outputs of a matrix, some heads of an attention. Values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/checked_math.h"
#include "base/function_ref.h"

namespace choral::layers {

struct Ranks {
  int rank = 0;
  int count = 1;
};

// Some of a layer's outputs, one after another.
struct Share {
  int64_t begin = 0, count = 0;

  Share times(int64_t width) const { return {begin * width, count * width}; }
  Share from(int64_t first) const { return {first + begin, count}; }
};

inline int64_t count_of(std::span<const Share> shares) {
  int64_t count = 0;
  for (const Share& share : shares) count += share.count;
  return count;
}

// Where each rank's share of [0, total) begins, in whole units, and where the last one's ends. [ranks + 1]
inline std::vector<int64_t> share_begins(int64_t total, int64_t unit, int ranks) {
  std::vector<int64_t> begins;
  const int64_t units = ceil_div(total, unit);
  for (int64_t r = 0; r <= ranks; ++r) begins.push_back(std::min(units * r / ranks * unit, total));
  return begins;
}
inline Share share_of(const std::vector<int64_t>& begins, int rank) {
  const auto r = static_cast<size_t>(rank);
  return {begins[r], begins[r + 1] - begins[r]};
}

// The heads of a layer that a rank has, and the groups that they are of: queries of one head of keys, value heads of one key
// head.
struct HeadShare {
  Share heads, groups;
  std::vector<int64_t> begins = {};  // of each rank's heads, and where the last one's end; empty: every rank has all
};
// By whole groups; of ranks that are a multiple of the groups several share one. All heads where neither goes.
HeadShare share_heads(const Ranks& ranks, int64_t heads, int64_t groups);
// The same, where every rank may have its share alone. A scheme of weights that has rows of several heads together says no.
HeadShare share_heads(const Ranks& ranks, int64_t heads, int64_t groups, FunctionRef<bool(const HeadShare&)> may_own);

// Each rank's columns of a matrix that has `width` columns a head.
std::vector<int64_t> column_begins(const HeadShare& share, int64_t width);

}  // namespace choral::layers
