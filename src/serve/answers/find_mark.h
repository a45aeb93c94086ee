// The first of some marks in a text that is still growing. Pure; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace choral::serve {

struct FoundMark {
  size_t at = 0;               // the text's end where there is none
  std::string_view mark = {};  // empty: none, or only the beginning of one
  bool partial = false;        // the latter
};

// Empty marks are none. At the end of the text, `is_all`, a beginning is nothing.
inline FoundMark find_mark(std::string_view text, std::span<const std::string_view> marks, bool is_all) {
  for (size_t at = 0; at < text.size(); ++at) {
    const std::string_view rest = text.substr(at);
    bool may_be = false;
    for (const std::string_view mark : marks) {
      if (mark.empty() || mark[0] != rest[0]) continue;
      if (rest.starts_with(mark)) return {at, mark};
      may_be = may_be || (!is_all && mark.starts_with(rest));
    }
    if (may_be) return {at, {}, true};
  }
  return {text.size()};
}

}  // namespace choral::serve
