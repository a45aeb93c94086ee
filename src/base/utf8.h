// Steps through UTF-8, which may be broken. Inline: texts are walked by them. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace choral {

// Length of the valid UTF-8 character at the front of `s` (which is not empty); 0 when it is broken, and then `broken` is the
// length of its maximal broken part (at least 1). `incomplete` tells that more bytes could still make it whole.
struct Utf8Step {
  uint32_t length;
  uint32_t broken;
  bool incomplete;
};
inline Utf8Step check_utf8(std::string_view s) {
  const auto at = [&s](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return {1, 0, false};
  uint32_t need;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte: no overlong forms, no surrogates, nothing over U+10FFFF
  if (lead >= 0xC2 && lead <= 0xDF) {
    need = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    need = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    need = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {0, 1, false};
  }
  for (uint32_t i = 1; i < need; ++i) {
    if (i >= s.size()) return {0, i, true};
    const bool fits = i == 1 ? at(1) >= low && at(1) <= high : (at(i) & 0xC0) == 0x80;
    if (!fits) return {0, i, false};
  }
  return {need, 0, false};
}

// The code point at `p`; moves `p` behind it. Valid UTF-8 only.
inline uint32_t next_code_point(const char*& p) {
  const auto b = [&p](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(p[i])); };
  uint32_t c = b(0);
  if (c < 0x80) return p += 1, c;
  if (c < 0xE0) return c = (c & 0x1F) << 6 | (b(1) & 0x3F), p += 2, c;
  if (c < 0xF0) return c = (c & 0x0F) << 12 | (b(1) & 0x3F) << 6 | (b(2) & 0x3F), p += 3, c;
  c = (c & 0x07) << 18 | (b(1) & 0x3F) << 12 | (b(2) & 0x3F) << 6 | (b(3) & 0x3F);
  return p += 4, c;
}

inline size_t utf8_length(unsigned char lead) { return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }

}  // namespace choral
