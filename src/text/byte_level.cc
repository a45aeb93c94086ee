#include "text/byte_level.h"

#include "text/unicode.h"

namespace choral::text {
namespace {

constexpr std::array<int16_t, 0x144> make_char_bytes() {
  std::array<int16_t, 0x144> table{};
  for (auto& entry : table) entry = -1;
  for (int b = 0; b < 256; ++b) table[kByteChars[b]] = static_cast<int16_t>(b);
  return table;
}
constexpr std::array<int16_t, 0x144> kCharBytes = make_char_bytes();

}  // namespace

int byte_of_char(uint32_t code_point) { return code_point < kCharBytes.size() ? kCharBytes[code_point] : -1; }

void append_byte_chars(std::string_view bytes, std::string& out) {
  for (const char b : bytes) append_utf8(kByteChars[static_cast<unsigned char>(b)], out);
}

bool append_bytes_of_chars(std::string_view token, std::string& out) {
  const size_t before = out.size();
  for (const char *p = token.data(), *end = p + token.size(); p < end;) {
    const int byte = byte_of_char(next_code_point(p));
    if (byte < 0) {
      out.resize(before);
      return false;
    }
    out += static_cast<char>(byte);
  }
  return true;
}

}  // namespace choral::text
