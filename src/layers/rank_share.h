// How a model is divided over ranks: each has some outputs of a matrix, some heads of an attention. Values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/checked_math.h"

namespace choral::layers {

struct Ranks {
  int rank = 0;
  int count = 1;
};

// Some of a layer's outputs, one after another.
struct Share {
  int64_t begin = 0, count = 0;
};

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

}  // namespace choral::layers
