#include "text/jinja/str_format.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/access.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/printf_format.h"
#include "text/jinja/text_form.h"
#include "text/jinja/text_ops.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {
namespace {

struct Spec {
  std::string fill = " ";
  char align = 0, sign = '-', type = 0, group = 0;
  bool alternate = false;
  int64_t width = 0, precision = -1;
};

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

// [[fill]align][sign][#][0][width][,][.precision][type]
Result<Spec> read_spec(Interpreter& interp, std::string_view text, const Value& value) {
  Spec spec;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  size_t after_fill = 0;
  if (!text.empty()) next_code_point(text, &after_fill);
  if (after_fill < text.size() && is_align(text[after_fill])) {
    spec.fill = text.substr(0, after_fill);
    spec.align = text[after_fill];
    text.remove_prefix(after_fill + 1);
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    text.remove_prefix(1);
  }
  const auto take = [&](std::string_view any) -> char {
    if (text.empty() || any.find(text[0]) == std::string_view::npos) return 0;
    const char c = text[0];
    text.remove_prefix(1);
    return c;
  };
  const auto take_number = [&](int64_t* out) {
    *out = 0;
    while (!text.empty() && is_digit_char(text[0]) && *out <= static_cast<int64_t>(interp.limits().max_string_bytes))
      *out = *out * 10 + (take("0123456789") - '0');
    return *out <= static_cast<int64_t>(interp.limits().max_string_bytes);
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != 0;
  if (!text.empty() && text[0] == '0') {
    if (spec.align == 0 && !value.is_string()) {
      spec.align = '=';
      spec.fill = "0";
    } else if (spec.align == 0) {
      spec.fill = "0";
    }
    take("0");
  }
  if (!take_number(&spec.width)) return too_large("Too many decimal digits in format string");
  spec.group = take(",_");
  if (take(".") != 0) {
    if (text.empty() || !is_digit_char(text[0])) return invalid_argument("Format specifier missing precision");
    if (!take_number(&spec.precision)) return too_large("Too many decimal digits in format string");
  }
  if (!text.empty()) {
    spec.type = text[0];
    text.remove_prefix(1);
  }
  if (!text.empty()) return invalid_argument("Invalid format specifier");
  return spec;
}

std::string grouped(std::string_view digits, char group) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) out += group;
    out += digits[i];
  }
  return out.append(digits.substr(whole));
}

// Sign or prefix and body, padded to the width.
Result<std::string> laid_out(Interpreter& interp, std::string_view prefix, const std::string& body, const Spec& spec,
                             char otherwise) {
  const char align = spec.align != 0 ? spec.align : otherwise;
  if (align == '=') {
    CHORAL_TRY(std::string padded, pad(interp, Text(body), spec.width - std::ssize(prefix), spec.fill, Align::kRight));
    return std::string(prefix) + padded;
  }
  const Text whole(std::string(prefix) + body);
  if (align != '^') return pad(interp, whole, spec.width, spec.fill, align == '<' ? Align::kLeft : Align::kRight);
  // Unlike str.center, an odd space goes to the right.
  const int64_t missing = std::max<int64_t>(spec.width - static_cast<int64_t>(whole.length), 0);
  CHORAL_TRY(std::string left, pad(interp, whole, static_cast<int64_t>(whole.length) + missing / 2, spec.fill, Align::kRight));
  return pad(interp, Text(std::move(left)), spec.width, spec.fill, Align::kLeft);
}

Result<std::string> format_text(Interpreter& interp, const std::string& text, const Spec& spec) {
  if (spec.type != 0 && spec.type != 's') return invalid_argument("Unknown format code '{}' for object of type 'str'", spec.type);
  if (spec.align == '=') return invalid_argument("'=' alignment not allowed in string format specifier");
  if (spec.sign != '-') return invalid_argument("Sign not allowed in string format specifier");
  std::string cut = text;
  if (spec.precision >= 0) cut.resize(byte_offset(cut, spec.precision));
  return laid_out(interp, "", cut, spec, '<');
}

Result<std::string> format_number(Interpreter& interp, const Value& value, Spec spec) {
  const bool integer_type = spec.type != 0 && std::string_view("dnxXobc").find(spec.type) != std::string_view::npos;
  const bool float_type = spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if ((spec.type != 0 && !integer_type && !float_type) || (integer_type && value.is_float()))
    return invalid_argument("Unknown format code '{}' for object of type '{}'", spec.type, type_name(value));
  std::string body, prefix;
  bool negative = false;
  if (value.is_integral() && !float_type) {
    if (spec.precision >= 0) return invalid_argument("Precision not allowed in integer format specifier");
    const int64_t n = value.as_int();
    if (spec.type == 'c') {
      if (n < 0 || n > 0x10FFFF || (n >= 0xD800 && n < 0xE000)) return invalid_argument("%c arg not in range(0x110000)");
      return laid_out(interp, "", encode(std::u32string(1, static_cast<char32_t>(n))), spec, '<');
    }
    negative = n < 0;
    body = format_integer(negative ? uint64_t{0} - static_cast<uint64_t>(n) : static_cast<uint64_t>(n),
                          spec.type == 0 || spec.type == 'n' ? 'd' : spec.type);
    if (spec.alternate && spec.type != 0 && spec.type != 'd' && spec.type != 'n') prefix = std::string("0") + spec.type;
  } else {
    double d = value.as_double();
    const int precision = static_cast<int>(std::min<int64_t>(spec.precision < 0 ? 6 : spec.precision, 10000));
    if (spec.type == 0 && spec.precision < 0) {
      body = float_repr(d);
    } else if (spec.type == '%') {
      body = format_float(d * 100, {'f', precision, spec.alternate}) + "%";
    } else {
      body =
          format_float(d, {spec.type == 0 ? 'g' : spec.type, spec.type == 0 && precision == 0 ? 1 : precision, spec.alternate});
      if (spec.type == 0 && body.find_first_not_of("-0123456789") == std::string::npos) body += ".0";
    }
    if (body[0] == '-') {
      negative = true;
      body.erase(0, 1);
    }
  }
  if (spec.group != 0) body = grouped(body, spec.group);
  prefix.insert(0, negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign));
  return laid_out(interp, prefix, body, spec, '>');
}

class Formatter {
 public:
  Formatter(Interpreter& interp, const Arguments& args) : interp_(interp), args_(args) {}

  Result<std::string> run(std::string_view format, int depth) {
    if (depth > 2) return invalid_argument("Max string recursion exceeded");
    std::string out;
    for (size_t i = 0; i < format.size();) {
      const char c = format[i];
      if ((c == '{' || c == '}') && i + 1 < format.size() && format[i + 1] == c) {
        out += c;
        i += 2;
      } else if (c == '}') {
        return invalid_argument("Single '}}' encountered in format string");
      } else if (c != '{') {
        out += c;
        ++i;
      } else {
        size_t end = i + 1, open = 1;
        for (; end < format.size(); ++end) {
          if (format[end] == '{') ++open;
          if (format[end] == '}' && --open == 0) break;
        }
        if (i + 1 == format.size()) return invalid_argument("Single '{{' encountered in format string");
        if (end >= format.size()) return invalid_argument("expected '}}' before end of string");
        CHORAL_TRY(const std::string text, field(format.substr(i + 1, end - i - 1), depth));
        out += text;
        i = end + 1;
      }
      CHORAL_RETURN_IF_ERROR(interp_.check_text(out.size()));
    }
    return out;
  }

 private:
  Result<std::string> field(std::string_view text, int depth) {
    size_t cut = 0;
    for (int brackets = 0; cut < text.size() && (brackets > 0 || (text[cut] != ':' && text[cut] != '!')); ++cut) {
      brackets += text[cut] == '[' ? 1 : text[cut] == ']' ? -1 : 0;
    }
    CHORAL_TRY(Value value, lookup(text.substr(0, cut)));
    std::string_view rest = text.substr(cut);
    char conversion = 0;
    if (!rest.empty() && rest[0] == '!') {
      if (rest.size() < 2) return invalid_argument("end of string while looking for conversion specifier");
      conversion = rest[1];
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') return invalid_argument("expected ':' after conversion specifier");
    }
    if (!rest.empty()) rest.remove_prefix(1);
    CHORAL_TRY(const std::string spec_text, run(rest, depth + 1));
    if (conversion != 0 && conversion != 's' && conversion != 'r' && conversion != 'a')
      return invalid_argument("Unknown conversion specifier {}", conversion);
    if (conversion != 0) {
      CHORAL_TRY(std::string shown, conversion == 's' ? to_text(interp_, value) : to_repr(interp_, value));
      value = Value::text(conversion == 'a' && value.is_string() ? string_ascii(value.str()) : std::move(shown));
    }
    if (value.is_string()) CHORAL_RETURN_IF_ERROR(interp_.walk(value.str().size()));
    if (spec_text.empty()) return to_text(interp_, value);
    CHORAL_TRY(const Spec spec, read_spec(interp_, spec_text, value));
    if (value.is_string()) return format_text(interp_, value.str(), spec);
    if (value.is_real()) return format_number(interp_, value, spec);
    return invalid_argument("unsupported format string passed to {}.__format__", type_name(value));
  }

  Result<Value> lookup(std::string_view path) {
    const size_t first_end = std::min(path.find_first_of(".["), path.size());
    const std::string_view first = path.substr(0, first_end);
    Value value;
    if (first.empty() || std::all_of(first.begin(), first.end(), is_digit_char)) {
      if (numbering_ != 0 && (numbering_ == 1) != first.empty())
        return invalid_argument("cannot switch between manual field specification and automatic field numbering");
      numbering_ = first.empty() ? 1 : 2;
      const size_t index = first.empty()      ? next_++
                           : first.size() > 9 ? SIZE_MAX
                                              : static_cast<size_t>(std::stoul(std::string(first)));
      if (index >= args_.positional.size())
        return invalid_argument("Replacement index {} out of range for positional args tuple", index);
      value = args_.positional[index];
    } else {
      CHORAL_RETURN_IF_ERROR(interp_.step(args_.named.size() / 4));
      const Value* found = args_.find_named(first);
      if (found == nullptr) return invalid_argument("{}", name_repr(first));
      value = *found;
    }
    for (path.remove_prefix(first_end); !path.empty();) {
      if (path[0] == '.') {
        const size_t end = std::min(path.find_first_of(".[", 1), path.size());
        CHORAL_TRY(value, get_attribute(interp_, value, path.substr(1, end - 1)));
        path.remove_prefix(end);
      } else {
        const size_t end = path.find(']');
        if (path[0] != '[' || end == std::string_view::npos || end == 1) return invalid_argument("Missing ']' in format string");
        const std::string_view key = path.substr(1, end - 1);
        const bool number = key.size() < 10 && std::all_of(key.begin(), key.end(), is_digit_char);
        CHORAL_TRY(value, get_item(interp_, value, number ? Value::integer(std::stoll(std::string(key))) : Value::text(key)));
        path.remove_prefix(end + 1);
      }
    }
    return value;
  }

  Interpreter& interp_;
  const Arguments& args_;
  size_t next_ = 0;
  int numbering_ = 0;  // 1: automatic, 2: by number
};

}  // namespace

Result<std::string> str_format(Interpreter& interp, std::string_view format, const Arguments& args) {
  return Formatter(interp, args).run(format, 0);
}

}  // namespace choral::text::jinja
