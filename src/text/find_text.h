// Substring search in linear time whatever is searched for; std::string::find takes the product of the two sizes at worst.
// Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace choral::text {

// Where `what` begins, at `from` or behind it; npos when nowhere. Empty text is found at `from` (at most text.size()).
size_t find_text(std::string_view text, std::string_view what, size_t from = 0);
size_t find_last_text(std::string_view text, std::string_view what);  // the last place

}  // namespace choral::text
