// What a regular expression of a request would make of memory and time, before any library sees it: its places when every
// repetition is written out, and the ways it can be broken that no library is trusted to survive ("foo**", "(((", "a{9,1}").
// One pass, no backtracking, no recursion. Thread-safety: pure function.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/status.h"

namespace choral::text {

struct RegexLimits {
  size_t max_bytes = 4096;
  size_t max_places = 16384;
  size_t max_depth = 64;
};

// invalid_argument with the byte at fault; too_large over a limit.
Status check_regex(std::string_view pattern, const RegexLimits& limits);

}  // namespace choral::text
