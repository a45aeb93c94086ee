// GPT-2's reversible map of the 256 byte values to printable characters: byte-level vocabularies are spelled with it.
// Thread-safety: constant tables and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace choral::text {

constexpr std::array<uint16_t, 256> make_byte_chars() {
  std::array<uint16_t, 256> table{};
  uint16_t next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    table[b] = printable ? static_cast<uint16_t>(b) : next++;
  }
  return table;
}
inline constexpr std::array<uint16_t, 256> kByteChars = make_byte_chars();  // byte -> code point, at most U+0143

int byte_of_char(uint32_t code_point);  // -1 when the code point stands for no byte
void append_byte_chars(std::string_view bytes, std::string& out);
// The bytes that `token` spells, appended; false (and nothing appended) when one of its characters stands for no byte.
bool append_bytes_of_chars(std::string_view token, std::string& out);

}  // namespace choral::text
