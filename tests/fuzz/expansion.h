// Small inputs that stand for large ones: what lies between the bytes 1 and 2 is repeated 2^n times, n the byte behind, with a
// count in place of each byte 3; so "many keys", "long lists" and "deep nesting" are a few bytes apart.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace choral::fuzz {

constexpr size_t kMaxExpanded = 1 << 20;

inline std::string expanded(std::string_view input) {
  std::string line;
  while (!input.empty() && line.size() < kMaxExpanded) {
    const size_t end = input[0] == '\1' ? input.find('\2') : std::string_view::npos;
    if (end == std::string_view::npos || end + 1 >= input.size()) {
      line += input[0];
      input.remove_prefix(1);
      continue;
    }
    const std::string_view piece = input.substr(1, end - 1);
    const uint64_t times = uint64_t{1} << (static_cast<unsigned char>(input[end + 1]) % 20);
    for (uint64_t i = 0; i < times && line.size() < kMaxExpanded; ++i) {
      for (const char c : piece) c == '\3' ? line += std::to_string(i) : line += c;
    }
    input.remove_prefix(end + 2);
  }
  return line;
}

}  // namespace choral::fuzz
