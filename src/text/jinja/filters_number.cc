#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/printf_format.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {
namespace {

// Digits with single underscores between them, as Python reads numbers from text.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
      continue;
    }
    const auto alnum = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    if (i == 0 || i + 1 == text.size() || !alnum(text[i - 1]) || !alnum(text[i + 1])) return std::nullopt;
  }
  return out;
}

std::optional<int64_t> read_int(std::string_view text, int base) {
  text = strip(text, true, true);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      text.remove_prefix(text[2] == '_' ? 3 : 2);
      base = marked;
    }
  }
  if (base == 0) base = 10;
  const auto digits = without_underscores(text);
  if (!digits || digits->empty() || (*digits)[0] == '-') return std::nullopt;
  const std::string signed_digits = (negative ? "-" : "") + *digits;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(signed_digits.data(), signed_digits.data() + signed_digits.size(), value, base);
  if (error != std::errc() || end != signed_digits.data() + signed_digits.size()) return std::nullopt;
  return value;
}

std::optional<double> read_float(std::string_view text) {
  text = strip(text, true, true);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const std::string word = lower(text);
  double value = 0;
  if (word == "inf" || word == "infinity") {
    value = HUGE_VAL;
  } else if (word == "nan") {
    value = std::nan("");
  } else {
    const auto digits = without_underscores(text);
    if (!digits || digits->empty() || ((*digits)[0] != '.' && ((*digits)[0] < '0' || (*digits)[0] > '9'))) return std::nullopt;
    const auto [end, error] = std::from_chars(digits->data(), digits->data() + digits->size(), value);
    if (end != digits->data() + digits->size()) return std::nullopt;
    if (error == std::errc::result_out_of_range)
      value = digits->find("e-") != std::string::npos || digits->find("E-") != std::string::npos ? 0 : HUGE_VAL;
  }
  return negative ? -value : value;
}

std::optional<int64_t> to_int(double d) {
  if (!(std::abs(d) < 0x1p63)) return std::nullopt;
  return static_cast<int64_t>(d);
}

Result<Value> int_filter(Interpreter&, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_int", args, {"default", "base"}));
  CHORAL_RETURN_IF_ERROR(check_defined(subject));
  CHORAL_TRY(const int64_t base, int_argument(bound[1], 10));
  if (base != 0 && (base < 2 || base > 36)) return bound[0] != nullptr ? *bound[0] : Value::integer(0);
  std::optional<int64_t> value;
  if (subject.is_string()) {
    value = read_int(subject.str(), static_cast<int>(base));
    if (!value) {
      if (const auto d = read_float(subject.str())) value = to_int(*d);
    }
  } else if (subject.is_real()) {
    value = subject.is_float() ? to_int(subject.as_double()) : subject.as_int();
  } else if (subject.kind() == Kind::kBigInt) {
    return subject;
  }
  if (value) return Value::integer(*value);
  return bound[0] != nullptr ? *bound[0] : Value::integer(0);
}

Result<Value> float_filter(Interpreter&, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_float", args, {"default"}));
  CHORAL_RETURN_IF_ERROR(check_defined(subject));
  std::optional<double> value;
  if (subject.is_real()) value = subject.as_double();
  if (subject.is_string()) value = read_float(subject.str());
  if (subject.kind() == Kind::kBigInt) value = read_float(subject.big_digits());
  if (value) return Value::number(*value);
  return bound[0] != nullptr ? *bound[0] : Value::number(0);
}

Result<Value> abs_filter(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("abs", args));
  if (subject.is_float()) return Value::number(std::abs(subject.as_double()));
  if (!subject.is_integral()) return invalid_argument("bad operand type for abs(): '{}'", type_name(subject));
  return subject.as_int() < 0 ? binary(interp, Operator::kSubtract, Value::integer(0), subject)
                              : Value::integer(subject.as_int());
}

// Python rounds the exact binary value, ties to even: printing with that many digits and reading back does the same.
double round_decimal(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < 0) {
    if (digits < -308) return std::copysign(0.0, value);
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / scale) * scale;
  }
  const std::string text = format_float(value, {'f', static_cast<int>(digits), false});
  double out = value;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

Result<Value> round_filter(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_round", args, {"precision", "method"}));
  CHORAL_TRY(const std::string_view method, text_argument(bound[1], "common"));
  if (method != "common" && method != "ceil" && method != "floor")
    return invalid_argument("method must be common, ceil or floor");
  CHORAL_TRY(const int64_t digits, int_argument(bound[0], 0));
  if (!subject.is_real()) return invalid_argument("type {} doesn't define __round__ method", type_name(subject));
  CHORAL_RETURN_IF_ERROR(interp.step(static_cast<uint64_t>(std::clamp<int64_t>(digits, 0, 400)) / 8));  // digits are printed
  if (method == "common") {
    if (subject.is_float()) return Value::number(round_decimal(subject.as_double(), digits));
    if (digits >= 0) return Value::integer(subject.as_int());
    if (digits < -18) return Value::integer(0);
    int64_t scale = 1;
    for (int64_t i = 0; i < -digits; ++i) scale *= 10;
    const int64_t n = subject.as_int();
    int64_t rest = n % scale;
    if (rest < 0) rest += scale;
    const int64_t below = n - rest;  // multiple of scale at or below n; may be just past the lowest integer
    const bool up = rest > scale - rest || (rest == scale - rest && (below / scale) % 2 != 0);
    return binary(interp, Operator::kAdd, Value::integer(below), Value::integer(up ? scale : 0));
  }
  CHORAL_TRY(const Value factor, binary(interp, Operator::kPower, Value::integer(10), Value::integer(digits)));
  CHORAL_TRY(const Value scaled, binary(interp, Operator::kMultiply, subject, factor));
  const double whole = method == "ceil" ? std::ceil(scaled.as_double()) : std::floor(scaled.as_double());
  const auto integer = scaled.is_float() ? to_int(whole) : scaled.as_int();
  if (!integer) return invalid_argument("the rounded number does not fit into a 64-bit integer");
  return binary(interp, Operator::kDivide, Value::integer(*integer), factor);
}

constexpr FilterEntry kNumberFilters[] = {
    {"int", int_filter}, {"float", float_filter}, {"abs", abs_filter}, {"round", round_filter}};

}  // namespace

std::span<const FilterEntry> number_filters() { return kNumberFilters; }

const FilterEntry* find_filter(std::string_view name) {
  for (const auto filters : {text_filters(), sequence_filters(), select_filters(), order_filters(), number_filters()}) {
    const auto found =
        std::find_if(filters.begin(), filters.end(), [&](const FilterEntry& filter) { return filter.name == name; });
    if (found != filters.end()) return &*found;
  }
  return nullptr;
}

}  // namespace choral::text::jinja
