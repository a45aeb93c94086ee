#include "base/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace choral {
namespace {

constexpr size_t kLongestTyped = 256;
constexpr size_t kLettersInWord = 64;

// Letters to add, to drop, to change, or to swap with their neighbour.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// The same where `typed` fits into a word: a column of the table above at a time, as differences between neighbours, one bit for
// each letter typed (Hyyrö, "A bit-vector algorithm for computing Levenshtein and Damerau edit distances", 2003).
size_t edit_distance_in_words(const std::array<uint64_t, 256>& places, size_t typed_size, std::string_view candidate) {
  const uint64_t lowest_row = uint64_t{1} << (typed_size - 1);
  uint64_t rises = ~uint64_t{0}, falls = 0, diagonal_same = 0, places_before = 0;
  size_t distance = typed_size;
  for (const char letter : candidate) {
    const uint64_t here = places[static_cast<unsigned char>(letter)];
    const uint64_t swapped = ((~diagonal_same & here) << 1) & places_before;
    diagonal_same = (((here & rises) + rises) ^ rises) | here | falls | swapped;
    uint64_t right_rises = falls | ~(diagonal_same | rises), right_falls = diagonal_same & rises;
    if ((right_rises & lowest_row) != 0) ++distance;
    if ((right_falls & lowest_row) != 0) --distance;
    right_rises = (right_rises << 1) | 1;
    right_falls <<= 1;
    rises = right_falls | ~(diagonal_same | right_rises);
    falls = right_rises & diagonal_same;
    places_before = here;
  }
  return distance;
}

}  // namespace

NearestName::NearestName(std::string_view typed) : typed_(typed), best_distance_(typed.size() + 1) {
  if (typed.size() > kLettersInWord) return;
  for (size_t i = 0; i < typed.size(); ++i) places_[static_cast<unsigned char>(typed[i])] |= uint64_t{1} << i;
}

size_t NearestName::distance(std::string_view candidate) {
  const bool in_words = typed_.size() <= kLettersInWord;
  steps_ += static_cast<int64_t>(candidate.size() * (in_words ? 1 : typed_.size()));
  return in_words ? edit_distance_in_words(places_, typed_.size(), candidate) : edit_distance(typed_, candidate);
}

void NearestName::consider(std::string_view candidate) {
  if (typed_.empty() || typed_.size() > kLongestTyped || steps_ >= kMostSteps) return;
  if (best_distance_ <= 1 && candidate != typed_) return;                             // no other name is nearer
  const auto [shorter, longer] = std::minmax({typed_.size(), candidate.size()});      // the list form: values, not references
  if ((longer - shorter) * 3 > longer || longer - shorter >= best_distance_) return;  // the distance is at least that
  const size_t found = distance(candidate);
  if (found >= best_distance_ || found * 3 > longer) return;
  best_distance_ = found;
  best_ = candidate;
}

std::string nearest_name(std::string_view typed, std::span<const std::string> candidates) {
  NearestName nearest(typed);
  for (const auto& candidate : candidates) nearest.consider(candidate);
  return nearest.best();
}

}  // namespace choral
