#include <algorithm>

#include "text/find_text.h"
#include "text/jinja/arguments.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/iterate.h"
#include "text/jinja/methods.h"
#include "text/jinja/str_format.h"
#include "text/jinja/text_ops.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {
namespace {

using Bytes = std::string_view;

// Methods without arguments that map text to text, or text to a truth.
template <std::string (*kMap)(std::string_view)>
Result<Value> mapped(Interpreter& interp, const Value& self, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("str method", args));
  CHORAL_RETURN_IF_ERROR(interp.check_text(self.str().size() * 3));
  return Value::text(kMap(self.str()));
}

bool all_of_text(Bytes text, bool (*is)(char32_t)) {
  for (size_t pos = 0; pos < text.size();) {
    if (!is(next_code_point(text, &pos))) return false;
  }
  return true;
}

template <bool (*kClass)(char32_t)>
Result<Value> all_are(Interpreter&, const Value& self, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("str method", args));
  return Value::boolean(!self.str().empty() && all_of_text(self.str(), kClass));
}

bool is_alphanumeric(char32_t c) { return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c); }

Result<Value> is_upper_method(Interpreter&, const Value& self, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("str.isupper", args));
  return Value::boolean(is_upper_text(self.str()));
}

Result<Value> is_lower_method(Interpreter&, const Value& self, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("str.islower", args));
  return Value::boolean(is_lower_text(self.str()));
}

Result<Value> is_title_method(Interpreter&, const Value& self, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("str.istitle", args));
  bool any = false, in_word = false;
  for (size_t pos = 0; pos < self.str().size();) {
    const char32_t c = next_code_point(self.str(), &pos);
    if ((is_upper(c) || is_title(c)) && in_word) return Value::boolean(false);
    if (is_lower(c) && !in_word) return Value::boolean(false);
    in_word = is_cased(c);
    any = any || in_word;
  }
  return Value::boolean(any);
}

Result<Value> is_ascii_method(Interpreter&, const Value& self, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("str.isascii", args));
  return Value::boolean(self.text_value().ascii());
}

Result<Value> is_identifier_method(Interpreter&, const Value& self, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("str.isidentifier", args));
  return Value::boolean(is_identifier(self.str()));
}

Result<Value> is_printable_method(Interpreter&, const Value& self, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("str.isprintable", args));
  return Value::boolean(all_of_text(self.str(), is_printable));
}

template <bool kLeft, bool kRight>
Result<Value> strip_method(Interpreter& interp, const Value& self, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("str.strip", args, {""}));
  if (bound[0] == nullptr || bound[0]->is_none()) return Value::text(strip(self.str(), kLeft, kRight));
  CHORAL_TRY(const Bytes chars, text_argument(bound[0], ""));
  CHORAL_RETURN_IF_ERROR(interp.allocated(chars.size() * sizeof(char32_t)));
  return Value::text(strip(self.str(), kLeft, kRight, &chars));
}

Result<Value> as_list(Interpreter& interp, const Result<TextPieces>& made) {
  CHORAL_RETURN_IF_ERROR(made.status());
  const TextPieces& pieces = *made;
  CHORAL_RETURN_IF_ERROR(interp.allocated(pieces.size() * 2 * sizeof(Value)));
  Values out;
  out.reserve(pieces.size());
  for (const Bytes piece : pieces) out.push_back(Value::text(piece));
  return interp.list(std::move(out));
}

template <bool kFromRight>
Result<Value> split_method(Interpreter& interp, const Value& self, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("str.split", args, {"sep", "maxsplit"}));
  CHORAL_TRY(const int64_t limit, int_argument(bound[1], -1));
  CHORAL_RETURN_IF_ERROR(interp.allocated(self.str().size()));
  if (bound[0] == nullptr || bound[0]->is_none()) return as_list(interp, split_spaces(interp, self.str(), limit, kFromRight));
  CHORAL_TRY(const Bytes separator, text_argument(bound[0], ""));
  if (separator.empty()) return invalid_argument("empty separator");
  return as_list(interp, split(interp, self.str(), separator, limit, kFromRight));
}

Result<Value> splitlines_method(Interpreter& interp, const Value& self, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("str.splitlines", args, {"keepends"}));
  CHORAL_RETURN_IF_ERROR(interp.allocated(self.str().size()));
  return as_list(interp, split_lines(interp, self.str(), bool_argument(bound[0], false)));
}

template <bool kFromRight>
Result<Value> partition_method(Interpreter& interp, const Value& self, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("str.partition", args, {""}, 1));
  CHORAL_TRY(const Bytes separator, text_argument(bound[0], ""));
  if (separator.empty()) return invalid_argument("empty separator");
  const Bytes text = self.str();
  const size_t at = kFromRight ? find_last_text(text, separator) : find_text(text, separator);
  if (at == Bytes::npos) {
    const Value whole = self, empty = Value::text("");
    return kFromRight ? interp.tuple({empty, empty, whole}) : interp.tuple({whole, empty, empty});
  }
  return interp.tuple({Value::text(text.substr(0, at)), Value::text(separator), Value::text(text.substr(at + separator.size()))});
}

// The part of the text that optional start and end arguments name, with the code points before it.
struct Window {
  Bytes text;
  int64_t before;
  bool valid;
};

Result<Window> window(const Value& self, const Value* start, const Value* end) {
  const auto n = static_cast<int64_t>(self.text_value().length);
  const auto given = [](const Value* v) { return v != nullptr && !v->is_none(); };
  if (!given(start) && !given(end)) return Window{self.str(), 0, true};
  CHORAL_TRY(int64_t from, int_argument(given(start) ? start : nullptr, 0));
  CHORAL_TRY(int64_t to, int_argument(given(end) ? end : nullptr, n));
  if (from < 0) from = std::max<int64_t>(from + n, 0);
  if (to < 0) to = std::max<int64_t>(to + n, 0);
  to = std::min(to, n);
  if (from > to) return Window{"", from, false};
  const Bytes text = self.str();
  const size_t begin = byte_offset(text, from);
  const Bytes rest = text.substr(begin);
  return Window{rest.substr(0, byte_offset(rest, to - from)), from, true};
}

template <bool kFromRight, bool kMustFind>
Result<Value> find_method_impl(Interpreter&, const Value& self, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("str.find", args, {"", "", ""}, 1));
  if (!bound[0]->is_string()) return invalid_argument("must be str, not {}", type_name(*bound[0]));
  CHORAL_TRY(const Window in, window(self, bound[1], bound[2]));
  const size_t at = !in.valid    ? Bytes::npos
                    : kFromRight ? find_last_text(in.text, bound[0]->str())
                                 : find_text(in.text, bound[0]->str());
  if (at == Bytes::npos) {
    if (kMustFind) return invalid_argument("substring not found");
    return Value::integer(-1);
  }
  return Value::integer(in.before + static_cast<int64_t>(code_point_count(in.text.substr(0, at))));
}

Result<Value> count_method(Interpreter&, const Value& self, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("str.count", args, {"", "", ""}, 1));
  if (!bound[0]->is_string()) return invalid_argument("must be str, not {}", type_name(*bound[0]));
  CHORAL_TRY(const Window in, window(self, bound[1], bound[2]));
  const Bytes what = bound[0]->str();
  if (!in.valid) return Value::integer(0);
  if (what.empty()) return Value::integer(static_cast<int64_t>(code_point_count(in.text)) + 1);
  int64_t n = 0;
  for (size_t at = find_text(in.text, what); at != Bytes::npos; at = find_text(in.text, what, at + what.size())) ++n;
  return Value::integer(n);
}

template <bool kEnd>
Result<Value> affix_method(Interpreter& interp, const Value& self, Arguments& args) {
  constexpr Bytes kName = kEnd ? "endswith" : "startswith";
  CHORAL_TRY(const auto bound, bind(kName, args, {"", "", ""}, 1));
  // Looks at no more of a long text than the affix has, unless it must count to a start or an end.
  if (bound[1] != nullptr || bound[2] != nullptr) CHORAL_RETURN_IF_ERROR(interp.walk(self.str().size()));
  CHORAL_RETURN_IF_ERROR(bound[0]->is_string() ? interp.look(bound[0]->str().size()) : interp.step(bound[0]->weight()));
  CHORAL_TRY(const Window in, window(self, bound[1], bound[2]));
  const auto fits = [&](const Value& affix) {
    return in.valid && (kEnd ? in.text.ends_with(affix.str()) : in.text.starts_with(affix.str()));
  };
  CHORAL_RETURN_IF_ERROR(
      bound[0]->is_undefined() ? invalid_argument("{} first arg must be str or a tuple of str, not Undefined", kName) : Status());
  if (bound[0]->is_string()) return Value::boolean(fits(*bound[0]));
  if (!bound[0]->is_tuple())
    return invalid_argument("{} first arg must be str or a tuple of str, not {}", kName, type_name(*bound[0]));
  for (const Value& affix : bound[0]->items()) {
    if (!affix.is_string()) return invalid_argument("tuple for {} must only contain str, not {}", kName, type_name(affix));
    if (fits(affix)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool kEnd>
Result<Value> remove_affix(Interpreter&, const Value& self, Arguments& args) {
  CHORAL_TRY(const auto bound, bind(kEnd ? "str.removesuffix" : "str.removeprefix", args, {""}, 1));
  CHORAL_TRY(const Bytes affix, text_argument(bound[0], ""));
  Bytes text = self.str();
  if (kEnd ? text.ends_with(affix) : text.starts_with(affix))
    text = kEnd ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size());
  return Value::text(text);
}

Result<Value> replace_method(Interpreter& interp, const Value& self, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("str.replace", args, {"", "", ""}, 2));
  for (int i = 0; i < 2; ++i)
    if (!bound[i]->is_string()) return invalid_argument("replace() argument {} must be str, not {}", i + 1, type_name(*bound[i]));
  CHORAL_TRY(const int64_t count, int_argument(bound[2], -1));
  CHORAL_TRY(std::string out, replace(interp, self.str(), bound[0]->str(), bound[1]->str(), count));
  return Value::text(std::move(out));
}

Result<Value> join_method(Interpreter& interp, const Value& self, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("str.join", args, {""}, 1));
  if (!is_iterable(*bound[0])) return invalid_argument("can only join an iterable");
  CHORAL_TRY(const auto items, elements_of(interp, *bound[0]));
  std::string out;
  for (size_t i = 0; i < items->size(); ++i) {
    const Value& item = (*items)[i];
    if (!item.is_string()) return invalid_argument("sequence item {}: expected str instance, {} found", i, type_name(item));
    if (i > 0) out += self.str();
    out += item.str();
    CHORAL_RETURN_IF_ERROR(interp.check_text(out.size()));
  }
  return Value::text(std::move(out));
}

template <Align kAlign>
Result<Value> justify(Interpreter& interp, const Value& self, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("str.center", args, {"", ""}, 1));
  CHORAL_TRY(const int64_t width, int_argument(bound[0], 0));
  CHORAL_TRY(const Bytes fill, text_argument(bound[1], " "));
  if (code_point_count(fill) != 1) return invalid_argument("The fill character must be exactly one character long");
  CHORAL_TRY(std::string out, pad(interp, self.text_value(), width, fill, kAlign));
  return Value::text(std::move(out));
}

Result<Value> zfill_method(Interpreter& interp, const Value& self, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("str.zfill", args, {""}, 1));
  CHORAL_TRY(const int64_t width, int_argument(bound[0], 0));
  const std::string& text = self.str();
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  CHORAL_TRY(std::string out, pad(interp, Text(text.substr(sign)), width - static_cast<int64_t>(sign), "0", Align::kRight));
  return Value::text(text.substr(0, sign) + out);
}

Result<Value> expandtabs_method(Interpreter& interp, const Value& self, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("str.expandtabs", args, {"tabsize"}));
  CHORAL_TRY(const int64_t size, int_argument(bound[0], 8));
  std::u32string out;
  int64_t column = 0;
  for (const char32_t c : decode(self.str())) {
    if (c == '\t') {
      const int64_t fill = size > 0 ? size - column % size : 0;
      CHORAL_RETURN_IF_ERROR(interp.check_text(out.size() * 4 + static_cast<size_t>(fill)));
      out.append(fill, U' ');
      column += fill;
    } else {
      out.push_back(c);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return Value::text(encode(out));
}

Result<Value> format_method(Interpreter& interp, const Value& self, Arguments& args) {
  CHORAL_TRY(std::string out, str_format(interp, self.str(), args));
  return Value::text(std::move(out));
}

constexpr Method kMethods[] = {
    {"strip", strip_method<true, true>},
    {"lstrip", strip_method<true, false>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", splitlines_method},
    {"partition", partition_method<false>},
    {"rpartition", partition_method<true>},
    {"startswith", affix_method<false>, false},
    {"endswith", affix_method<true>, false},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"upper", mapped<upper>},
    {"lower", mapped<lower>},
    {"title", mapped<title>},
    {"capitalize", mapped<capitalize>},
    {"swapcase", mapped<swapcase>},
    {"casefold", mapped<casefold>},
    {"replace", replace_method},
    {"find", find_method_impl<false, false>},
    {"rfind", find_method_impl<true, false>},
    {"index", find_method_impl<false, true>},
    {"rindex", find_method_impl<true, true>},
    {"count", count_method},
    {"join", join_method},
    {"format", format_method},
    {"isalpha", all_are<is_alpha>},
    {"isdigit", all_are<is_digit>},
    {"isdecimal", all_are<is_decimal>},
    {"isnumeric", all_are<is_numeric>},
    {"isalnum", all_are<is_alphanumeric>},
    {"isspace", all_are<is_space>},
    {"isupper", is_upper_method},
    {"islower", is_lower_method},
    {"istitle", is_title_method},
    {"isascii", is_ascii_method},
    {"isidentifier", is_identifier_method},
    {"isprintable", is_printable_method},
    {"zfill", zfill_method},
    {"center", justify<Align::kCenter>},
    {"ljust", justify<Align::kLeft>},
    {"rjust", justify<Align::kRight>},
    {"expandtabs", expandtabs_method},
};

}  // namespace

std::span<const Method> text_methods() { return kMethods; }

}  // namespace choral::text::jinja
