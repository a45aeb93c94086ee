#include "text/jinja/print.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {
namespace {

// Shortest digits that read back, with Python's exponent rules.
std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const double size = std::abs(value);
  const bool fixed = size == 0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string out(buffer.data(), end);
  if (fixed && out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_repr(value);
}

void append_json_unit(uint32_t unit, std::string* out) { *out += fmt::format("\\u{:04x}", unit); }

// Both forms share their shape: brackets, separators, and what is paid for each value.
class Printer {
 public:
  Printer(Interpreter& interp, const JsonStyle* json) : interp_(interp), json_(json) {}

  Status print(const Value& value, size_t level) {
    CHORAL_RETURN_IF_ERROR(interp_.check_text(out_.size()));
    CHORAL_RETURN_IF_ERROR(interp_.step());
    const Nesting nesting = interp_.nested();  // a namespace may hold itself, or a list with itself inside
    CHORAL_RETURN_IF_ERROR(interp_.check_depth());
    if (value.is_string()) CHORAL_RETURN_IF_ERROR(interp_.walk(value.str().size()));
    const auto word = [&](std::string_view in_json, std::string_view in_python) { out_ += json_ ? in_json : in_python; };
    switch (value.kind()) {
      case Kind::kNone: word("null", "None"); return {};
      case Kind::kBool: value.as_bool() ? word("true", "True") : word("false", "False"); return {};
      case Kind::kInt: out_ += std::to_string(value.as_int()); return {};
      case Kind::kBigInt: out_ += value.big_digits(); return {};
      case Kind::kFloat: out_ += json_ ? json_float(value.as_double()) : float_repr(value.as_double()); return {};
      case Kind::kString:
        if (json_ == nullptr) return out_ += string_repr(value.str()), Status();
        return append_json_text(value.str(), json_->ascii, &out_), Status();
      case Kind::kList: return print_items(value.items(), '[', "]", level);
      case Kind::kTuple:
        if (json_) return print_items(value.items(), '[', "]", level);
        return print_items(value.items(), '(', value.items().size() == 1 ? ",)" : ")", level);
      case Kind::kDict: return print_dict(value.dict(), level);
      default: break;
    }
    if (json_) return invalid_argument("Object of type {} is not JSON serializable", type_name(value));
    if (value.is_undefined()) return out_ += "Undefined", Status();
    CHORAL_TRY(const std::string text, value.object()->repr(interp_));
    return out_ += text, Status();
  }

  std::string take() { return std::move(out_); }

 private:
  Status new_line(size_t level) {
    if (json_ == nullptr || !json_->indent) return {};
    CHORAL_RETURN_IF_ERROR(interp_.check_text(out_.size() + level * json_->indent->size()));
    out_ += '\n';
    for (size_t i = 0; i < level; ++i) out_ += *json_->indent;
    return {};
  }

  template <class Range, class Each>
  Status print_each(const Range& range, char open, std::string_view close, size_t level, const Each& each) {
    out_ += open;
    bool first = true;
    for (const auto& entry : range) {
      if (!std::exchange(first, false)) out_ += json_ && json_->indent ? "," : ", ";
      CHORAL_RETURN_IF_ERROR(new_line(level + 1));
      CHORAL_RETURN_IF_ERROR(each(entry));
    }
    if (!first) CHORAL_RETURN_IF_ERROR(new_line(level));
    return out_ += close, Status();
  }

  Status print_items(const Values& items, char open, std::string_view close, size_t level) {
    return print_each(items, open, close, level, [&](const Value& item) { return print(item, level + 1); });
  }

  Status print_dict(const Dict& dict, size_t level) {
    return print_each(dict.entries(), '{', "}", level, [&](const Dict::Entry& entry) -> Status {
      CHORAL_RETURN_IF_ERROR(json_ ? print_json_key(entry.first) : print(entry.first, level + 1));
      out_ += ": ";
      return print(entry.second, level + 1);
    });
  }

  Status print_json_key(const Value& key) {
    if (key.is_tuple() || key.is_object() || key.is_undefined())
      return invalid_argument("keys must be str, int, float, bool or None, not {}", type_name(key));
    if (!key.is_string()) out_ += '"';
    CHORAL_RETURN_IF_ERROR(print(key, 0));
    if (!key.is_string()) out_ += '"';
    return {};
  }

  Interpreter& interp_;
  const JsonStyle* json_;  // null: Python's repr
  std::string out_;
};

Result<std::string> printed(Interpreter& interp, const Value& value, const JsonStyle* json) {
  Printer printer(interp, json);
  CHORAL_RETURN_IF_ERROR(printer.print(value, 0));
  std::string out = printer.take();
  CHORAL_RETURN_IF_ERROR(interp.check_text(out.size()));
  return out;
}

Result<std::string> decimal(const Value& value) {
  CHORAL_RETURN_IF_ERROR(check_defined(value));
  if (value.is_float() && std::abs(value.as_double()) < 0x1p63) return std::to_string(static_cast<int64_t>(value.as_double()));
  if (value.kind() == Kind::kBigInt) return value.big_digits();
  if (value.is_integral()) return std::to_string(value.as_int());
  return invalid_argument("%d format: a real number is required, not {}", type_name(value));
}

}  // namespace

std::string string_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    const auto c = static_cast<uint32_t>(next_code_point(text, &pos));
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      out.append({'\\', static_cast<char>(c)});
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out.append({'\\', c == '\n' ? 'n' : c == '\r' ? 'r' : 't'});
    } else if (c >= ' ' && is_printable(c)) {
      out.append(text.substr(start, pos - start));
    } else {
      out += c < 0x100 ? fmt::format("\\x{:02x}", c) : c < 0x10000 ? fmt::format("\\u{:04x}", c) : fmt::format("\\U{:08x}", c);
    }
  }
  out.push_back(quote);
  return out;
}

std::string_view cut_name(std::string_view name) {
  size_t end = std::min<size_t>(name.size(), 200);
  while (end < name.size() && (name[end] & 0xC0) == 0x80) ++end;
  return name.substr(0, end);
}

std::string name_repr(std::string_view name) { return string_repr(cut_name(name)); }

Result<std::string> to_repr(Interpreter& interp, const Value& value) { return printed(interp, value, nullptr); }

Result<std::string> to_text(Interpreter& interp, const Value& value) {
  if (value.is_string()) return value.str();
  if (value.is_undefined()) return std::string();
  return to_repr(interp, value);
}

Result<std::string> to_json(Interpreter& interp, const Value& value, const JsonStyle& style) {
  return printed(interp, value, &style);
}

void append_json_text(std::string_view text, bool ascii, std::string* out) {
  out->push_back('"');
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    const auto c = static_cast<uint32_t>(next_code_point(text, &pos));
    static constexpr std::string_view kFrom = "\"\\\n\r\t\f\b", kTo = "\"\\nrtfb";
    const size_t simple = c < 0x80 ? kFrom.find(static_cast<char>(c)) : kFrom.npos;
    if (simple != kFrom.npos) {
      out->append({'\\', kTo[simple]});
    } else if (c >= ' ' && (c < 0x80 || !ascii)) {
      out->append(text.substr(start, pos - start));
    } else if (c < 0x10000) {
      append_json_unit(c, out);
    } else {
      append_json_unit(0xD800 + ((c - 0x10000) >> 10), out);
      append_json_unit(0xDC00 + ((c - 0x10000) & 0x3FF), out);
    }
  }
  out->push_back('"');
}

Result<Value> printf_format(Interpreter& interp, std::string_view format, const Value& values) {
  CHORAL_RETURN_IF_ERROR(interp.walk(format.size()));
  const Values one = {values};
  const Values& given = values.is_tuple() ? values.items() : one;
  std::string out;
  size_t used = 0;
  for (size_t pos = 0; pos < format.size();) {
    const size_t percent = std::min(format.find('%', pos), format.size());
    CHORAL_RETURN_IF_ERROR(interp.check_text(out.size() + percent - pos));
    out.append(format.substr(pos, percent - pos));
    if (percent == format.size()) break;
    pos = percent + 2;
    const char type = percent + 1 < format.size() ? format[percent + 1] : '\0';
    if (type == '\0') return invalid_argument("incomplete format");
    if (type != '%' && type != 's' && type != 'd')
      return unsupported(
          "printf-style formatting with other fields than %s and %d is not supported ({}); use ~, |round or |tojson",
          string_repr(format.substr(percent, 8)));
    if (type == '%') {
      out += '%';
      continue;
    }
    if (used == given.size()) return invalid_argument("not enough arguments for format string");
    const Value& value = given[used++];
    CHORAL_TRY(const std::string text, type == 's' ? to_text(interp, value) : decimal(value));
    CHORAL_RETURN_IF_ERROR(interp.walk(text.size()));
    CHORAL_RETURN_IF_ERROR(interp.check_text(out.size() + text.size()));
    out += text;
  }
  // What has items need not be used; a number or text must.
  const bool may_be_left = values.is_dict() || values.is_list() || values.is_undefined() || values.is_object();
  if (used < given.size() && (values.is_tuple() || !may_be_left))
    return invalid_argument("not all arguments converted during string formatting");
  return Value::text(std::move(out));
}

Result<Value> str_format(Interpreter& interp, std::string_view format, const Arguments& args) {
  std::string out;
  size_t next = 0;
  for (size_t pos = 0; pos < format.size();) {
    const size_t brace = std::min(format.find_first_of("{}", pos), format.size());
    CHORAL_RETURN_IF_ERROR(interp.check_text(out.size() + brace - pos + 1));
    out.append(format.substr(pos, brace - pos));
    if (brace == format.size()) break;
    if (brace + 1 < format.size() && format[brace + 1] == format[brace]) {
      out += format[brace];
      pos = brace + 2;
      continue;
    }
    if (format[brace] == '}') return invalid_argument("Single '}}' encountered in format string");
    const size_t end = format.find('}', brace);
    if (end == std::string_view::npos) return invalid_argument("expected '}}' before end of string");
    const std::string_view field = format.substr(brace + 1, end - brace - 1);
    const size_t colon = std::min(field.find(':'), field.size());
    const std::string_view name = field.substr(0, colon), spec = field.substr(std::min(colon + 1, field.size()));
    pos = end + 1;
    const Value* value = nullptr;
    if (name.empty()) {
      if (next == args.positional.size())
        return invalid_argument("Replacement index {} out of range for positional args tuple", next);
      value = &args.positional[next++];
    } else {
      CHORAL_RETURN_IF_ERROR(interp.step(args.named.size() / 4));
      for (const auto& [known, argument] : args.named)
        if (known == name) value = &argument;
    }
    const bool plain =
        name.find_first_of(".[!{0123456789") == std::string_view::npos && (spec.empty() || spec == "s" || spec == "d");
    const bool fits = value == nullptr || spec.empty() || (spec == "s" ? value->is_string() : value->is_integral());
    if (!plain || !fits)
      return unsupported("the field {} of str.format is not supported here; use ~ or |round",
                         name_repr(format.substr(brace, end + 1 - brace)));
    if (value == nullptr) return invalid_argument("{}", name_repr(name));
    CHORAL_TRY(const std::string text, spec == "d" ? decimal(*value) : to_text(interp, *value));
    CHORAL_RETURN_IF_ERROR(interp.walk(text.size()));
    CHORAL_RETURN_IF_ERROR(interp.check_text(out.size() + text.size()));
    out += text;
  }
  return Value::text(std::move(out));
}

}  // namespace choral::text::jinja
