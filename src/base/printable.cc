#include "base/printable.h"

#include <fmt/core.h>

#include <cstdint>

namespace choral {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: the text does not begin with a whole character of UTF-8
};

Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  if (overlong || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return {};
  return {code, bytes};
}

// C0, DEL, C1, line and paragraph separators, embeddings and isolates that reorder what follows.
bool drives_terminal(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

std::string made_harmless(std::string_view text, bool keep_indented_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character c = first_character(text);
    if (c.bytes == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (keep_indented_lines && text.starts_with("\n  ")) {
      out += '\n';
    } else if (c.code == '\n') {
      out += "\\n";
    } else if (drives_terminal(c.code)) {
      out += c.code < 0x80 ? fmt::format("\\x{:02x}", c.code) : fmt::format("\\u{{{:04x}}}", c.code);
    } else {
      out += text.substr(0, c.bytes);
    }
    text.remove_prefix(c.bytes == 0 ? 1 : c.bytes);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view name, size_t max_bytes) {
  std::string out;
  for (const char c : name.substr(0, max_bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7F || c == '\'' || c == '\\') {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  if (name.size() > max_bytes) out += fmt::format("... ({} bytes)", name.size());
  return out;
}

std::string quoted(std::string_view text, size_t max_bytes) {
  const bool cut = text.size() > max_bytes;
  if (cut) {
    while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0) == 0x80) --max_bytes;  // whole characters
    text = text.substr(0, max_bytes);
  }
  return fmt::format("\"{}{}\"", terminal_line(text), cut ? "…" : "");
}

std::string terminal_line(std::string_view text) { return made_harmless(text, false); }
std::string terminal_text(std::string_view text) { return made_harmless(text, true); }

}  // namespace choral
