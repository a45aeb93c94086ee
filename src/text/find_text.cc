#include "text/find_text.h"

#include <string.h>

#include <vector>

namespace choral::text {
namespace {

constexpr size_t kShort = 32;  // bytes; up to here comparing anew at each place costs no more than reading on

}  // namespace

// memmem of the C library is linear (two-way), and fast on short needles.
size_t find_text(std::string_view text, std::string_view what, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (what.empty()) return from;
  const void* const at = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return at == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(at) - text.data());
}

// Knuth, Morris and Pratt, from the end: `matched` bytes of the end of `what` stand at the place.
size_t find_last_text(std::string_view text, std::string_view what) {
  if (what.size() <= kShort) return text.rfind(what);
  if (what.size() > text.size()) return std::string_view::npos;
  const auto from_end = [](std::string_view s, size_t i) { return s[s.size() - 1 - i]; };
  std::vector<size_t> shorter(what.size() + 1, 0);  // of i matched bytes: the most that match again, but not all i
  for (size_t i = 1, matched = 0; i < what.size(); ++i) {
    while (matched > 0 && from_end(what, i) != from_end(what, matched)) matched = shorter[matched];
    if (from_end(what, i) == from_end(what, matched)) ++matched;
    shorter[i + 1] = matched;
  }
  for (size_t i = 0, matched = 0; i < text.size(); ++i) {
    while (matched > 0 && from_end(text, i) != from_end(what, matched)) matched = shorter[matched];
    if (from_end(text, i) == from_end(what, matched)) ++matched;
    if (matched == what.size()) return text.size() - 1 - i;
  }
  return std::string_view::npos;
}

}  // namespace choral::text
