#include "text/jinja/text_ops.h"

#include <algorithm>

#include "text/find_text.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {

Result<TextPieces> split(Interpreter& interp, std::string_view text, std::string_view separator, int64_t limit, bool from_right) {
  TextPieces out;
  while (limit < 0 || std::ssize(out) < limit) {
    const size_t at = from_right ? find_last_text(text, separator) : find_text(text, separator);
    if (at == std::string_view::npos) break;
    CHORAL_RETURN_IF_ERROR(interp.check_elements(out.size() + 1));
    if (from_right) {
      out.push_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    } else {
      out.push_back(text.substr(0, at));
      text = text.substr(at + separator.size());
    }
  }
  out.push_back(text);
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

Result<TextPieces> split_spaces(Interpreter& interp, std::string_view text, int64_t limit, bool from_right) {
  TextPieces out;
  text = strip(text, !from_right, from_right);
  while (!text.empty()) {
    CHORAL_RETURN_IF_ERROR(interp.check_elements(out.size() + 1));
    if (limit >= 0 && std::ssize(out) >= limit) {
      out.push_back(text);
      break;
    }
    size_t begin = 0, end = text.size();
    if (from_right) {
      for (begin = text.size(); begin > 0;) {
        size_t start = begin - 1;
        while (start > 0 && (text[start] & 0xC0) == 0x80) --start;
        size_t pos = start;
        if (is_space(next_code_point(text, &pos))) break;
        begin = start;
      }
    } else {
      for (size_t pos = 0; pos < text.size();) {
        const size_t start = pos;
        if (is_space(next_code_point(text, &pos))) {
          end = start;
          break;
        }
      }
    }
    out.push_back(text.substr(begin, end - begin));
    text = from_right ? strip(text.substr(0, begin), false, true) : strip(text.substr(end), true, false);
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

Result<TextPieces> split_lines(Interpreter& interp, std::string_view text, bool keep_ends) {
  TextPieces out;
  size_t line = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    const char32_t c = next_code_point(text, &pos);
    if (!is_line_break(c)) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    CHORAL_RETURN_IF_ERROR(interp.check_elements(out.size() + 1));
    out.push_back(text.substr(line, (keep_ends ? pos : start) - line));
    line = pos;
  }
  if (line < text.size()) out.push_back(text.substr(line));
  return out;
}

Result<std::string> replace(Interpreter& interp, std::string_view text, std::string_view from, std::string_view to,
                            int64_t count) {
  std::string out;
  size_t pos = 0;
  for (int64_t n = 0; count < 0 || n < count; ++n) {
    const size_t at = from.empty() ? pos : find_text(text, from, pos);
    if (at == std::string_view::npos) break;
    CHORAL_RETURN_IF_ERROR(interp.check_text(out.size() + (at - pos) + to.size() + 4));
    out.append(text.substr(pos, at - pos)).append(to);
    pos = at + from.size();
    if (!from.empty()) continue;
    if (pos == text.size()) return out;  // between all characters, and at both ends
    const size_t start = pos;
    next_code_point(text, &pos);
    out.append(text.substr(start, pos - start));
  }
  CHORAL_RETURN_IF_ERROR(interp.check_text(out.size() + text.size() - pos));
  out.append(text.substr(pos));
  return out;
}

Result<std::string> pad(Interpreter& interp, const Text& text, int64_t width, std::string_view fill, Align align) {
  const auto length = static_cast<int64_t>(text.length);
  if (width <= length) return text.bytes;
  const auto missing = static_cast<uint64_t>(width - length);
  CHORAL_RETURN_IF_ERROR(
      interp.check_text(missing > interp.limits().max_string_bytes ? missing : text.bytes.size() + missing * fill.size()));
  uint64_t left = align == Align::kLeft ? 0 : missing;
  if (align == Align::kCenter) left = missing / 2 + (missing & static_cast<uint64_t>(width) & 1);
  std::string out;
  for (uint64_t i = 0; i < left; ++i) out += fill;
  out += text.bytes;
  for (uint64_t i = left; i < missing; ++i) out += fill;
  return out;
}

bool is_upper_text(std::string_view text) {
  bool any = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = next_code_point(text, &pos);
    if (is_lower(c) || is_title(c)) return false;
    any = any || is_upper(c);
  }
  return any;
}

bool is_lower_text(std::string_view text) {
  bool any = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = next_code_point(text, &pos);
    if (is_upper(c) || is_title(c)) return false;
    any = any || is_lower(c);
  }
  return any;
}

}  // namespace choral::text::jinja
