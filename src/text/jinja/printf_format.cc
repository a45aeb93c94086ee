#include "text/jinja/printf_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_form.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {
namespace {

struct Spec {
  bool left = false, zero = false, plus = false, space = false, alternate = false;
  int64_t width = 0, precision = -1;
};

class Formatter {
 public:
  Formatter(Interpreter& interp, std::string_view format, const Value& values)
      : interp_(interp), format_(format), values_(values) {}

  Result<std::string> run() {
    CHORAL_RETURN_IF_ERROR(interp_.walk(format_.size()));
    while (pos_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', pos_), format_.size());
      out_.append(format_.substr(pos_, percent - pos_));
      pos_ = percent;
      if (pos_ < format_.size()) CHORAL_RETURN_IF_ERROR(conversion());
      CHORAL_RETURN_IF_ERROR(interp_.check_text(out_.size()));
    }
    // A dict as the only argument need not be used; neither may anything that has items, but a number or text must.
    if (values_.is_tuple()
            ? used_ < values_.items().size()
            : used_ == 0 && !values_.is_dict() && !values_.is_list() && !values_.is_undefined() && !values_.is_object())
      return invalid_argument("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  Result<Value> next_value() {
    if (values_.is_tuple()) {
      if (used_ < values_.items().size()) return values_.items()[used_++];
    } else if (used_++ == 0) {
      return values_;
    }
    return invalid_argument("not enough arguments for format string");
  }

  Result<int64_t> read_number(const char* what) {
    if (pos_ < format_.size() && format_[pos_] == '*') {
      ++pos_;
      CHORAL_TRY(const Value v, next_value());
      if (!v.is_integral()) return invalid_argument("* wants int");
      if (v.as_int() > static_cast<int64_t>(interp_.limits().max_string_bytes) || v.as_int() < -INT32_MAX)
        return too_large("{} too big in a format", what);
      return v.as_int();
    }
    int64_t n = 0;
    while (pos_ < format_.size() && format_[pos_] >= '0' && format_[pos_] <= '9') {
      n = n * 10 + (format_[pos_++] - '0');
      if (n > static_cast<int64_t>(interp_.limits().max_string_bytes)) return too_large("{} too big in a format", what);
    }
    return n;
  }

  Status conversion() {
    ++pos_;
    Spec spec;
    std::optional<Value> value;
    if (pos_ < format_.size() && format_[pos_] == '(') {
      if (!values_.is_dict()) return invalid_argument("format requires a mapping");
      const size_t close = format_.find(')', pos_);
      if (close == std::string_view::npos) return invalid_argument("incomplete format key");
      CHORAL_RETURN_IF_ERROR(interp_.look((close - pos_) * 32));
      const Value* found = values_.dict().find(format_.substr(pos_ + 1, close - pos_ - 1));
      if (found == nullptr) return invalid_argument("{}", name_repr(format_.substr(pos_ + 1, close - pos_ - 1)));
      value = *found;
      used_ = 1;
      pos_ = close + 1;
    }
    for (bool flags = true; flags && pos_ < format_.size();) {
      switch (format_[pos_]) {
        case '-': spec.left = true; break;
        case '0': spec.zero = true; break;
        case '+': spec.plus = true; break;
        case ' ': spec.space = true; break;
        case '#': spec.alternate = true; break;
        default: flags = false; continue;
      }
      ++pos_;
    }
    CHORAL_TRY(spec.width, read_number("width"));
    if (spec.width < 0) {
      spec.left = true;
      spec.width = -spec.width;
    }
    if (pos_ < format_.size() && format_[pos_] == '.') {
      ++pos_;
      CHORAL_TRY(spec.precision, read_number("precision"));
      spec.precision = std::max<int64_t>(spec.precision, 0);
    }
    while (pos_ < format_.size() && (format_[pos_] == 'l' || format_[pos_] == 'h' || format_[pos_] == 'L')) ++pos_;
    if (pos_ >= format_.size()) return invalid_argument("incomplete format");
    const size_t at = pos_;
    const char32_t type = next_code_point(format_, &pos_);
    if (type == '%') return out_ += '%', Status();
    if (!value) {
      CHORAL_TRY(value, next_value());
    }
    CHORAL_RETURN_IF_ERROR(interp_.check_text(out_.size() + static_cast<size_t>(spec.width)));
    return convert(type, *value, spec, at);
  }

  Status convert(char32_t type, const Value& value, const Spec& spec, size_t at) {
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        if (value.is_string()) CHORAL_RETURN_IF_ERROR(interp_.walk(value.str().size()));
        CHORAL_TRY(std::string text, type == 's' ? to_text(interp_, value) : to_repr(interp_, value));
        if (type == 'a') {
          std::string ascii;
          for (const char32_t c : decode(text)) {
            const auto code = static_cast<uint32_t>(c);
            ascii += c < 0x80      ? std::string(1, static_cast<char>(c))
                     : c < 0x100   ? fmt::format("\\x{:02x}", code)
                     : c < 0x10000 ? fmt::format("\\u{:04x}", code)
                                   : fmt::format("\\U{:08x}", code);
          }
          text = std::move(ascii);
        }
        if (spec.precision >= 0) text.resize(byte_offset(text, spec.precision));
        return pad(text, "", spec, false), Status();
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': return convert_integer(static_cast<char>(type), value, spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        CHORAL_RETURN_IF_ERROR(check_defined(value));
        if (!value.is_real()) return invalid_argument("must be real number, not {}", type_name(value));
        std::string text =
            format_float(value.as_double(),
                         {static_cast<char>(type),
                          static_cast<int>(std::min<int64_t>(spec.precision < 0 ? 6 : spec.precision, 10000)), spec.alternate});
        const bool negative = text[0] == '-';
        const bool finite = std::isfinite(value.as_double());
        Spec padding = spec;
        padding.zero = spec.zero && finite;
        return pad(negative ? text.substr(1) : text, sign(negative, spec), padding, true), Status();
      }
      case 'c': {
        if (value.is_string() && value.text_value().length == 1) return pad(value.str(), "", spec, false), Status();
        if (!value.is_integral()) return invalid_argument("%c requires int or char");
        const int64_t c = value.as_int();
        if (c < 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return invalid_argument("%c arg not in range(0x110000)");
        return pad(encode(std::u32string(1, static_cast<char32_t>(c))), "", spec, false), Status();
      }
      default:
        return invalid_argument("unsupported format character '{}' (0x{:x}) at index {}", encode(std::u32string(1, type)),
                                static_cast<uint32_t>(type), code_point_count(format_.substr(0, at)));
    }
  }

  Status convert_integer(char type, const Value& value, const Spec& spec) {
    CHORAL_RETURN_IF_ERROR(check_defined(value));
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (!value.is_integral() && !(decimal && value.is_float()))
      return invalid_argument("%{} format: {} is required, not {}", type, decimal ? "a real number" : "an integer",
                              type_name(value));
    if (value.is_float() && !(std::abs(value.as_double()) < 0x1p63))
      return invalid_argument("cannot convert float to a 64-bit integer");
    const int64_t n = value.is_float() ? static_cast<int64_t>(value.as_double()) : value.as_int();
    std::string digits =
        format_integer(n < 0 ? uint64_t{0} - static_cast<uint64_t>(n) : static_cast<uint64_t>(n), decimal ? 'd' : type);
    if (spec.precision > std::ssize(digits)) {
      CHORAL_RETURN_IF_ERROR(interp_.check_text(spec.precision));
      digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
    }
    std::string prefix = sign(n < 0, spec);
    if (spec.alternate && !decimal) prefix += type == 'o' ? "0o" : type == 'x' ? "0x" : "0X";
    pad(digits, prefix, spec, true);
    return {};
  }

  static std::string sign(bool negative, const Spec& spec) { return negative ? "-" : spec.plus ? "+" : spec.space ? " " : ""; }

  void pad(std::string_view text, std::string_view prefix, const Spec& spec, bool number) {
    const size_t length = code_point_count(text) + prefix.size();
    const size_t fill = static_cast<size_t>(spec.width) > length ? static_cast<size_t>(spec.width) - length : 0;
    if (spec.left) {
      out_.append(prefix).append(text).append(fill, ' ');
    } else if (spec.zero && number) {
      out_.append(prefix).append(fill, '0').append(text);
    } else {
      out_.append(fill, ' ').append(prefix).append(text);
    }
  }

  Interpreter& interp_;
  std::string_view format_;
  const Value& values_;
  std::string out_;
  size_t pos_ = 0;
  size_t used_ = 0;
};

}  // namespace

std::string format_float(double value, const NumberFormat& format) {
  if (!std::isfinite(value)) {
    std::string text = std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
    if (format.type == 'E' || format.type == 'F' || format.type == 'G')
      std::transform(text.begin(), text.end(), text.begin(), [](char c) { return c == '-' ? c : static_cast<char>(c - 32); });
    return text;
  }
  const char pattern[] = {'%', format.alternate ? '#' : '-', '.', '*', format.type, '\0'};
  std::vector<char> buffer(static_cast<size_t>(format.precision) + 352);  // 309 digits before the point at most
  const int n = std::snprintf(buffer.data(), buffer.size(), pattern, format.precision, value);
  return std::string(buffer.data(), n);
}

std::string format_integer(uint64_t magnitude, char type) {
  switch (type) {
    case 'x': return fmt::format("{:x}", magnitude);
    case 'X': return fmt::format("{:X}", magnitude);
    case 'o': return fmt::format("{:o}", magnitude);
    case 'b': return fmt::format("{:b}", magnitude);
    default: return fmt::format("{}", magnitude);
  }
}

Result<std::string> printf_format(Interpreter& interp, std::string_view format, const Value& values) {
  return Formatter(interp, format, values).run();
}

}  // namespace choral::text::jinja
