// Blanks, digits and letters of ASCII, whatever the locale: what files, headers and variables are read with. Pure; any thread.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace choral {

inline constexpr std::string_view kBlanks = " \t\r\n";  // JSON's white space too

inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
// Its value in a hexadecimal number; -1 for what is no digit of one.
inline int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}
inline bool is_lower_hex(std::string_view text) { return text.find_first_not_of("0123456789abcdef") == text.npos; }

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
