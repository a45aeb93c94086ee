#include "base/printable.h"

#include <fmt/core.h>

namespace choral {

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

}  // namespace choral
