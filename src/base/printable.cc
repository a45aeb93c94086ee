#include "base/printable.h"

#include <fmt/core.h>

#include <cstdint>

#include "base/utf8.h"

namespace choral {
namespace {

// C0, DEL, C1, line and paragraph separators, embeddings and isolates that reorder what follows.
bool drives_terminal(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

std::string made_harmless(std::string_view text, bool keep_indented_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = check_utf8(text).length;
    if (bytes == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
      text.remove_prefix(1);
      continue;
    }
    const char* p = text.data();
    const uint32_t code = next_code_point(p);
    if (keep_indented_lines && text.starts_with("\n  ")) {
      out += '\n';
    } else if (code == '\n') {
      out += "\\n";
    } else if (drives_terminal(code)) {
      out += code < 0x80 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{{{:04x}}}", code);
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
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
