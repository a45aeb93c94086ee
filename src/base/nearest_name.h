// "Did you mean …?": the candidate with the smallest edit distance to what was typed, or nothing when none is close.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace choral {

// Empty when every candidate differs in more than a third of its letters.
std::string nearest_name(std::string_view typed, std::span<const std::string> candidates);

}  // namespace choral
