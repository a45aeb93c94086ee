// Blanks and letters of ASCII, whatever the locale: what files, headers and variables are read with. Pure; any thread.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace choral {

inline constexpr std::string_view kBlanks = " \t\r\n";

inline std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);  // npos + 1 is 0
}

inline char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }
inline std::string lower(std::string text) {
  for (char& c : text) c = lower(c);
  return text;
}

}  // namespace choral
