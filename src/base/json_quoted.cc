#include "base/json_quoted.h"

#include <fmt/core.h>

#include "base/utf8.h"

namespace choral {

std::string json_quoted(std::string_view text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string out = "\"";
  out.reserve(text.size() + 2);
  while (!text.empty()) {
    const Utf8Step step = check_utf8(text);
    if (step.length == 0) {
      out += kReplacement;
      text.remove_prefix(step.broken);
      continue;
    }
    const char c = text[0];
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += text.substr(0, step.length);
        }
    }
    text.remove_prefix(step.length);
  }
  return out += '"';
}

}  // namespace choral
