// The filters and methods of text.
#include <algorithm>

#include "text/find_text.h"
#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {
namespace {

using Pieces = std::vector<std::string_view>;  // views into a text; never more than max_elements

// The subject as text; methods are called on text alone.
Result<std::string> subject_text(Call& call) { return to_text(call.interp, call.self); }

template <std::string (*kMap)(std::string_view)>
Result<Value> mapped(Call& call) {
  CHORAL_TRY(const std::string text, subject_text(call));
  CHORAL_RETURN_IF_ERROR(call.interp.check_text(text.size() * 3));
  return Value::text(kMap(text));
}

// Unlike str.title, words begin after white space, dashes and open brackets only.
std::string title_words(std::string_view text) {
  std::string out;
  size_t word = 0;
  const auto flush = [&](size_t end) {
    if (end == word) return;
    size_t rest = word;
    next_code_point(text, &rest);
    out += upper(text.substr(word, rest - word)) + lower(text.substr(rest, end - rest));
  };
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    const char32_t c = next_code_point(text, &pos);
    if (c != '-' && c != '(' && c != '{' && c != '[' && c != '<' && !is_space(c)) continue;
    flush(start);
    out.append(text.substr(start, pos - start));
    word = pos;
  }
  flush(text.size());
  return out;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out.push_back(c);
    }
  }
  return out;
}

template <bool kLeft, bool kRight>
Result<Value> strip_text(Call& call) {
  CHORAL_TRY(const std::string text, subject_text(call));
  if (!call.given(0)) return Value::text(strip(text, kLeft, kRight));
  CHORAL_TRY(const std::string_view chars, call.text(0, ""));
  CHORAL_RETURN_IF_ERROR(call.interp.allocated(chars.size() * sizeof(char32_t)));
  return Value::text(strip(text, kLeft, kRight, &chars));
}

Result<Value> replaced(Call& call, std::string_view from, std::string_view to) {
  CHORAL_TRY(const std::string text, subject_text(call));
  CHORAL_TRY(const int64_t count, call.given(2) ? call.integer(2, -1) : Result<int64_t>(int64_t{-1}));
  std::string out;
  size_t pos = 0;
  for (int64_t n = 0; count < 0 || n < count; ++n) {
    const size_t at = from.empty() ? pos : find_text(text, from, pos);
    if (at == std::string_view::npos) break;
    CHORAL_RETURN_IF_ERROR(call.interp.check_text(out.size() + (at - pos) + to.size() + 4));
    out.append(text, pos, at - pos).append(to);
    pos = at + from.size();
    if (!from.empty()) continue;
    if (pos == text.size()) return Value::text(std::move(out));  // between all characters, and at both ends
    const size_t start = pos;
    next_code_point(text, &pos);
    out.append(text, start, pos - start);
  }
  CHORAL_RETURN_IF_ERROR(call.interp.check_text(out.size() + text.size() - pos));
  return Value::text(out.append(text, pos));
}

Result<Value> replace_filter(Call& call) {
  CHORAL_TRY(const std::string from, to_text(call.interp, *call.bound[0]));
  CHORAL_TRY(const std::string to, to_text(call.interp, *call.bound[1]));
  return replaced(call, from, to);
}

Result<Value> replace_method(Call& call) {
  for (int i = 0; i < 2; ++i) {
    if (!call.bound[i]->is_string())
      return invalid_argument("replace() argument {} must be str, not {}", i + 1, type_name(*call.bound[i]));
  }
  return replaced(call, call.bound[0]->str(), call.bound[1]->str());
}

Result<Pieces> lines_of(Interpreter& interp, std::string_view text) {
  Pieces out;
  size_t line = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    const char32_t c = next_code_point(text, &pos);
    if (!is_line_break(c)) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    CHORAL_RETURN_IF_ERROR(interp.check_elements(out.size() + 1));
    out.push_back(text.substr(line, start - line));
    line = pos;
  }
  if (line < text.size()) out.push_back(text.substr(line));
  return out;
}

// How far an indentation goes: a text, or that many spaces.
Result<std::string> indentation(Call& call, size_t i, int64_t otherwise) {
  if (call.bound[i] != nullptr && call.bound[i]->is_string()) return call.bound[i]->str();
  CHORAL_TRY(const int64_t width, call.integer(i, otherwise));
  CHORAL_RETURN_IF_ERROR(call.interp.check_text(static_cast<uint64_t>(std::max<int64_t>(width, 0))));
  return std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
}

Result<Value> indent(Call& call) {
  CHORAL_RETURN_IF_ERROR(check_defined(call.self));
  if (!call.self.is_string()) return invalid_argument("unsupported operand type(s) for +=: '{}' and 'str'", type_name(call.self));
  CHORAL_TRY(const std::string indention, indentation(call, 0, 4));
  const bool blank = call.flag(2, false);
  bool indents = call.flag(1, false);
  const std::string text = call.self.str() + "\n";
  CHORAL_TRY(const Pieces lines, lines_of(call.interp, text));
  std::string out;
  for (const std::string_view& line : lines) {
    if (&line != lines.data()) {
      out += '\n';
      indents = blank || !line.empty();
    }
    if (indents) out += indention;
    out.append(line);
    CHORAL_RETURN_IF_ERROR(call.interp.check_text(out.size()));
  }
  return Value::text(std::move(out));
}

// Hugging Face's tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False), not Jinja's HTML-safe one.
Result<Value> tojson(Call& call) {
  JsonStyle style;
  style.ascii = call.flag(0, false);
  if (call.given(2) || call.flag(3, false)) return unsupported("tojson() with separators or sort_keys is not supported");
  if (call.given(1)) {
    CHORAL_TRY(style.indent, indentation(call, 1, 0));
  }
  CHORAL_TRY(std::string out, to_json(call.interp, call.self, style));
  return Value::text(std::move(out));
}

Result<Value> format_filter(Call& call) {
  if (!call.args.named.empty()) return unsupported("format() with named values is not supported; use ~");
  CHORAL_TRY(const std::string text, subject_text(call));
  CHORAL_TRY(const Value values, call.interp.tuple(std::move(call.args.positional)));
  return printf_format(call.interp, text, values);
}

Result<Value> format_method(Call& call) { return str_format(call.interp, call.self.str(), call.args); }

Result<Value> string_filter(Call& call) {
  CHORAL_TRY(std::string text, subject_text(call));
  return Value::text(std::move(text));
}

// At most `limit` cuts; any number when it is negative. An empty separator is white space, as much as there is.
Result<Pieces> split_text(Interpreter& interp, std::string_view text, std::string_view separator, int64_t limit) {
  Pieces out;
  const bool spaces = separator.empty();
  const auto find_space = [&text]() -> size_t {
    for (size_t pos = 0, start = 0; pos < text.size(); start = pos)
      if (is_space(next_code_point(text, &pos))) return start;
    return std::string_view::npos;
  };
  if (spaces) text = strip(text, true, false);
  while ((limit < 0 || std::ssize(out) < limit) && !(spaces && text.empty())) {
    const size_t at = spaces ? find_space() : find_text(text, separator);
    if (at == std::string_view::npos) break;
    CHORAL_RETURN_IF_ERROR(interp.check_elements(out.size() + 1));
    out.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
    if (spaces) text = strip(text, true, false);
  }
  if (!(spaces && text.empty())) out.push_back(text);
  return out;
}

Result<Value> pieces_as(Call& call, const Pieces& pieces, bool as_tuple) {
  CHORAL_RETURN_IF_ERROR(call.interp.allocated(call.self.str().size() + pieces.size() * 2 * sizeof(Value)));
  Values out;
  for (const std::string_view piece : pieces) out.push_back(Value::text(piece));
  return as_tuple ? call.interp.tuple(std::move(out)) : call.interp.list(std::move(out));
}

Result<Value> split_method(Call& call) {
  CHORAL_TRY(const std::string_view separator, call.text(0, ""));
  if (call.given(0) && separator.empty()) return invalid_argument("empty separator");
  CHORAL_TRY(const int64_t limit, call.integer(1, -1));
  CHORAL_TRY(const Pieces pieces, split_text(call.interp, call.self.str(), separator, limit));
  return pieces_as(call, pieces, false);
}

Result<Value> rsplit_method(Call& call) {
  CHORAL_TRY(const std::string_view separator, call.text(0, ""));
  CHORAL_TRY(const int64_t limit, call.integer(1, -1));
  if (limit < 0) return split_method(call);
  if (separator.empty()) return unsupported("rsplit() at white space with maxsplit is not supported; give the separator");
  std::string_view text = call.self.str();
  Pieces pieces;
  while (std::ssize(pieces) < limit) {
    const size_t at = find_last_text(text, separator);
    if (at == text.npos) break;
    CHORAL_RETURN_IF_ERROR(call.interp.check_elements(pieces.size() + 1));
    CHORAL_RETURN_IF_ERROR(call.interp.look(text.size()));
    pieces.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  pieces.push_back(text);
  std::reverse(pieces.begin(), pieces.end());
  return pieces_as(call, pieces, false);
}

Result<Value> partition_method(Call& call) {
  CHORAL_TRY(const std::string_view separator, call.text(0, ""));
  if (separator.empty()) return invalid_argument("empty separator");
  const std::string_view text = call.self.str();
  const size_t at = find_text(text, separator);
  if (at == text.npos) return pieces_as(call, {text, "", ""}, true);
  return pieces_as(call, {text.substr(0, at), separator, text.substr(at + separator.size())}, true);
}

Result<Value> splitlines_method(Call& call) {
  CHORAL_TRY(const Pieces lines, lines_of(call.interp, call.self.str()));
  return pieces_as(call, lines, false);
}

// Counted in code points, as Python has it; -1: nowhere.
Result<Value> find_method(Call& call) {
  CHORAL_TRY(const std::string_view wanted, call.text(0, ""));
  const std::string_view text = call.self.str();
  const size_t at = find_text(text, wanted);
  return Value::integer(at == text.npos ? -1 : static_cast<int64_t>(code_point_count(text.substr(0, at))));
}

Result<Value> count_method(Call& call) {
  CHORAL_TRY(const std::string_view wanted, call.text(0, ""));
  const std::string_view text = call.self.str();
  if (wanted.empty()) return Value::integer(static_cast<int64_t>(code_point_count(text)) + 1);
  int64_t count = 0;
  for (size_t at = find_text(text, wanted); at != text.npos; at = find_text(text, wanted, at + wanted.size())) ++count;
  return Value::integer(count);
}

template <bool kEnd>
Result<Value> without_affix(Call& call) {
  CHORAL_TRY(const std::string_view affix, call.text(0, ""));
  std::string_view text = call.self.str();
  if (kEnd ? text.ends_with(affix) : text.starts_with(affix)) {
    kEnd ? text.remove_suffix(affix.size()) : text.remove_prefix(affix.size());
  }
  CHORAL_RETURN_IF_ERROR(call.interp.allocated(text.size()));
  return Value::text(text);
}

// Looks at no more of a long text than the affix has.
template <bool kEnd>
Result<Value> affix_method(Call& call) {
  constexpr std::string_view kName = kEnd ? "endswith" : "startswith";
  const Value& wanted = *call.bound[0];
  CHORAL_RETURN_IF_ERROR(call.interp.step(wanted.weight()));
  if (call.bound[1] != nullptr || call.bound[2] != nullptr)
    return unsupported("{}() with a start or end is not supported; cut the text first: text[a:b]", kName);
  if (!wanted.is_string() && !wanted.is_tuple())
    return invalid_argument("{} first arg must be str or a tuple of str, not {}", kName, type_name(wanted));
  const Values one = {wanted};
  for (const Value& affix : wanted.is_tuple() ? wanted.items() : one) {
    if (!affix.is_string()) return invalid_argument("tuple for {} must only contain str, not {}", kName, type_name(affix));
    if (kEnd ? call.self.str().ends_with(affix.str()) : call.self.str().starts_with(affix.str())) return Value::boolean(true);
  }
  return Value::boolean(false);
}

Result<Value> join_method(Call& call) {
  if (!is_iterable(*call.bound[0])) return invalid_argument("can only join an iterable");
  CHORAL_TRY(const Value elements, elements_of(call.interp, *call.bound[0]));
  std::string out;
  for (size_t i = 0; i < elements.items().size(); ++i) {
    const Value& item = elements.items()[i];
    if (!item.is_string()) return invalid_argument("sequence item {}: expected str instance, {} found", i, type_name(item));
    if (i > 0) out += call.self.str();
    out += item.str();
    CHORAL_RETURN_IF_ERROR(call.interp.check_text(out.size()));
  }
  return Value::text(std::move(out));
}

constexpr Builtin kTextFilters[] = {
    {"upper", mapped<upper>},
    {"lower", mapped<lower>},
    {"capitalize", mapped<capitalize>},
    {"title", mapped<title_words>},
    {"e", mapped<escaped>},
    {"escape", mapped<escaped>},
    {"safe", string_filter},
    {"string", string_filter},
    {"trim", strip_text<true, true>, "chars"},
    {"replace", replace_filter, "old new count", 2},
    {"indent", indent, "width first blank"},
    {"format", format_filter, "*"},
    {"tojson", tojson, "ensure_ascii indent separators sort_keys"},
};

constexpr Builtin kMethods[] = {
    {"strip", strip_text<true, true>, "/chars"},
    {"lstrip", strip_text<true, false>, "/chars"},
    {"rstrip", strip_text<false, true>, "/chars"},
    {"split", split_method, "sep maxsplit"},
    {"rsplit", rsplit_method, "sep maxsplit"},
    {"partition", partition_method, "/sep", 1},
    {"splitlines", splitlines_method},
    {"find", find_method, "/sub", 1},
    {"count", count_method, "/sub", 1},
    {"removeprefix", without_affix<false>, "/prefix", 1},
    {"removesuffix", without_affix<true>, "/suffix", 1},
    {"startswith", affix_method<false>, "/prefix /start /end", 1, false},
    {"endswith", affix_method<true>, "/suffix /start /end", 1, false},
    {"upper", mapped<upper>},
    {"lower", mapped<lower>},
    {"title", mapped<title>},
    {"capitalize", mapped<capitalize>},
    {"replace", replace_method, "/old /new /count", 2},
    {"join", join_method, "/iterable", 1},
    {"format", format_method, "*"},
};

}  // namespace

std::span<const Builtin> text_filters() { return kTextFilters; }
std::span<const Builtin> text_methods() { return kMethods; }

}  // namespace choral::text::jinja
