// "Did you mean …?": the candidate with the smallest edit distance to what was typed, or nothing when none is close. What was
// typed may be anybody's, and the candidates many: the work is bounded, and what is over it is not looked at.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace choral {

// Takes candidates one by one. Not thread-safe.
class NearestName {
 public:
  static constexpr int64_t kMostSteps = 2'000'000;  // some milliseconds

  explicit NearestName(std::string_view typed);
  void consider(std::string_view candidate);
  // Empty when every candidate differs in more than a third of its letters.
  const std::string& best() const { return best_; }
  // Of work: letters of candidates, or pairs of letters where what was typed is long.
  int64_t steps() const { return steps_; }

 private:
  size_t distance(std::string_view candidate);

  std::string typed_;
  std::array<uint64_t, 256> places_{};  // of each letter in what was typed, where it is short: bit i is letter i
  std::string best_;
  size_t best_distance_;
  int64_t steps_ = 0;
};

std::string nearest_name(std::string_view typed, std::span<const std::string> candidates);

}  // namespace choral
