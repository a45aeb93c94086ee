// The few Unicode facts the tokenizer's stages need, on UTF-8. Everything past sanitize_utf8 may rely on valid UTF-8.
// Properties come from utf8proc, corrected to what HF's tokenizers see (unicode_versions.h). All work is linear in the input,
// whatever the input is. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace choral::text {

constexpr uint32_t kReplacementChar = 0xFFFD;

// Length of the valid UTF-8 character at the front of `s` (which is not empty); 0 when it is broken, and then `broken` is the
// length of its maximal broken part (at least 1). `incomplete` tells that more bytes could still make it whole.
struct Utf8Step {
  uint32_t length;
  uint32_t broken;
  bool incomplete;
};
Utf8Step check_utf8(std::string_view s);

// `in` itself when it is valid UTF-8, else a copy in `storage` with U+FFFD for each maximal broken part.
std::string_view sanitize_utf8(std::string_view in, std::string& storage);

void append_utf8(uint32_t code_point, std::string& out);

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

bool is_white_space(uint32_t c);  // property White_Space
bool is_numeric(uint32_t c);      // categories Nd, Nl, No
bool is_punctuation(uint32_t c);  // ASCII punctuation and categories P*
bool is_mark(uint32_t c);         // categories Mn, Mc, Me

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// False, with a part done, when more than `most_bytes` would be appended.
bool normalize_utf8(NormalForm form, std::string_view in, uint64_t most_bytes, std::string& appended);
void lowercase_utf8(std::string_view in, std::string& appended);  // full mapping, without context

}  // namespace choral::text
