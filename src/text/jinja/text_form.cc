#include "text/jinja/text_form.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {
namespace {

std::string quoted(std::string_view text, bool ascii) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    const char32_t c = next_code_point(text, &pos);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c >= ' ' && c < 0x7F) {
      out.push_back(static_cast<char>(c));
    } else if (c >= 0x80 && !ascii && is_printable(c)) {
      out.append(text.substr(start, pos - start));
    } else {
      const auto code = static_cast<uint32_t>(c);
      out += c < 0x100     ? fmt::format("\\x{:02x}", code)
             : c < 0x10000 ? fmt::format("\\u{:04x}", code)
                           : fmt::format("\\U{:08x}", code);
    }
  }
  out.push_back(quote);
  return out;
}

Status append_repr(Interpreter& interp, const Value& value, std::string* out);

Status append_items(Interpreter& interp, const Values& items, std::string* out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) *out += ", ";
    CHORAL_RETURN_IF_ERROR(append_repr(interp, items[i], out));
  }
  return {};
}

Status append_repr(Interpreter& interp, const Value& value, std::string* out) {
  CHORAL_RETURN_IF_ERROR(interp.check_text(out->size()));
  CHORAL_RETURN_IF_ERROR(interp.step());
  Interpreter::DepthGuard depth(&interp);  // a namespace may hold itself, or a list with itself inside
  CHORAL_RETURN_IF_ERROR(depth.check());
  if (value.is_string()) CHORAL_RETURN_IF_ERROR(interp.walk(value.str().size()));
  switch (value.kind()) {
    case Kind::kUndefined: *out += "Undefined"; break;
    case Kind::kNone: *out += "None"; break;
    case Kind::kBool: *out += value.as_bool() ? "True" : "False"; break;
    case Kind::kInt: *out += std::to_string(value.as_int()); break;
    case Kind::kFloat: *out += float_repr(value.as_double()); break;
    case Kind::kBigInt: *out += value.big_digits(); break;
    case Kind::kString: *out += quoted(value.str(), false); break;
    case Kind::kList:
      *out += '[';
      CHORAL_RETURN_IF_ERROR(append_items(interp, value.items(), out));
      *out += ']';
      break;
    case Kind::kTuple:
      *out += '(';
      CHORAL_RETURN_IF_ERROR(append_items(interp, value.items(), out));
      *out += value.items().size() == 1 ? ",)" : ")";
      break;
    case Kind::kDict: {
      *out += '{';
      bool first = true;
      for (const auto& [k, v] : value.dict().entries()) {
        if (!std::exchange(first, false)) *out += ", ";
        CHORAL_RETURN_IF_ERROR(append_repr(interp, k, out));
        *out += ": ";
        CHORAL_RETURN_IF_ERROR(append_repr(interp, v, out));
      }
      *out += '}';
      break;
    }
    case Kind::kObject: {
      CHORAL_TRY(const std::string text, value.object()->repr(interp));
      *out += text;
    }
  }
  return {};
}

}  // namespace

std::string string_repr(std::string_view text) { return quoted(text, false); }
std::string_view cut_name(std::string_view name) {
  size_t end = std::min<size_t>(name.size(), 200);
  while (end < name.size() && (name[end] & 0xC0) == 0x80) ++end;
  return name.substr(0, end);
}
std::string name_repr(std::string_view name) { return string_repr(cut_name(name)); }
std::string string_ascii(std::string_view text) { return quoted(text, true); }

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer.data(), end - buffer.data());
  const size_t e = scientific.find('e');
  const int exponent = std::atoi(scientific.data() + e + 1);
  if (exponent < -4 || exponent >= 16)
    return fmt::format("{}e{}{:02}", scientific.substr(0, e), exponent < 0 ? '-' : '+', std::abs(exponent));
  const bool negative = scientific[0] == '-';
  std::string digits;
  for (const char c : scientific.substr(negative ? 1 : 0, e - (negative ? 1 : 0)))
    if (c != '.') digits.push_back(c);
  std::string out = negative ? "-" : "";
  if (exponent < 0) return out + "0." + std::string(-exponent - 1, '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

Result<std::string> to_repr(Interpreter& interp, const Value& value) {
  std::string out;
  CHORAL_RETURN_IF_ERROR(append_repr(interp, value, &out));
  CHORAL_RETURN_IF_ERROR(interp.check_text(out.size()));
  return out;
}

Result<std::string> to_text(Interpreter& interp, const Value& value) {
  if (value.is_string()) return value.str();
  if (value.is_undefined()) return std::string();
  return to_repr(interp, value);
}

}  // namespace choral::text::jinja
