#include "base/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace choral {
namespace {

constexpr size_t kLongestTyped = 256;  // the distance takes the product of the lengths

// Letters to add, to drop, to change, or to swap with their neighbour.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last, last, row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last = std::exchange(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view typed, std::span<const std::string> candidates) {
  std::string best;
  size_t best_distance = typed.size() + 1;
  if (typed.size() > kLongestTyped) return best;
  for (const auto& candidate : candidates) {
    const size_t longer = std::max(typed.size(), candidate.size());
    if ((longer - std::min(typed.size(), candidate.size())) * 3 > longer) continue;  // the distance is at least that
    const size_t distance = edit_distance(typed, candidate);
    if (distance < best_distance && distance * 3 <= longer) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace choral
