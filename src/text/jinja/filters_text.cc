#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/iterate.h"
#include "text/jinja/json.h"
#include "text/jinja/operators.h"
#include "text/jinja/printf_format.h"
#include "text/jinja/text_form.h"
#include "text/jinja/text_ops.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {
namespace {

template <std::string (*kMap)(std::string_view)>
Result<Value> mapped(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("filter", args));
  CHORAL_TRY(const std::string text, to_text(interp, subject));
  CHORAL_RETURN_IF_ERROR(interp.check_text(text.size() * 3));
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

Result<std::string> without_tags(Interpreter& interp, std::string_view text) {
  std::string out;
  // Comments go first, for they may hold tags.
  for (size_t begin; (begin = text.find("<!--")) != std::string_view::npos;) {
    const size_t end = text.find("-->", begin);
    if (end == std::string_view::npos) break;
    out.append(text.substr(0, begin));
    text.remove_prefix(end + 3);
  }
  out.append(text);
  std::string stripped;
  std::string_view rest = out;
  for (size_t begin; (begin = rest.find('<')) != std::string_view::npos;) {
    const size_t end = rest.find('>', begin);
    if (end == std::string_view::npos) break;
    stripped.append(rest.substr(0, begin));
    rest.remove_prefix(end + 1);
  }
  stripped.append(rest);
  std::string joined;
  CHORAL_TRY(const TextPieces words, split_spaces(interp, stripped, -1, false));
  for (const std::string_view word : words) joined.append(joined.empty() ? "" : " ").append(word);
  // The entities that escape() writes, and nothing else.
  static constexpr std::pair<std::string_view, char> kEntities[] = {{"&lt;", '<'},   {"&gt;", '>'},   {"&#34;", '"'},
                                                                    {"&#39;", '\''}, {"&quot;", '"'}, {"&amp;", '&'}};
  std::string plain;
  for (size_t i = 0; i < joined.size();) {
    const auto entity = std::find_if(std::begin(kEntities), std::end(kEntities),
                                     [&](const auto& e) { return std::string_view(joined).substr(i).starts_with(e.first); });
    if (entity != std::end(kEntities)) {
      plain.push_back(entity->second);
      i += entity->first.size();
    } else {
      plain.push_back(joined[i++]);
    }
  }
  return plain;
}

Result<Value> striptags(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("filter", args));
  CHORAL_TRY(const std::string text, to_text(interp, subject));
  CHORAL_TRY(std::string out, without_tags(interp, text));
  return Value::text(std::move(out));
}

Result<Value> trim(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_trim", args, {"chars"}));
  CHORAL_TRY(const std::string text, to_text(interp, subject));
  if (bound[0] == nullptr || bound[0]->is_none()) return Value::text(strip(text, true, true));
  CHORAL_TRY(const std::string_view chars, text_argument(bound[0], ""));
  CHORAL_RETURN_IF_ERROR(interp.allocated(chars.size() * sizeof(char32_t)));
  return Value::text(strip(text, true, true, &chars));
}

Result<Value> replace_filter(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_replace", args, {"old", "new", "count"}, 2));
  CHORAL_TRY(const std::string text, to_text(interp, subject));
  CHORAL_TRY(const std::string from, to_text(interp, *bound[0]));
  CHORAL_TRY(const std::string to, to_text(interp, *bound[1]));
  CHORAL_TRY(const int64_t count, int_argument(bound[2] != nullptr && bound[2]->is_none() ? nullptr : bound[2], -1));
  CHORAL_TRY(std::string out, replace(interp, text, from, to, count));
  return Value::text(std::move(out));
}

Result<Value> center(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_center", args, {"width"}));
  CHORAL_TRY(const int64_t width, int_argument(bound[0], 80));
  CHORAL_TRY(std::string text, to_text(interp, subject));
  CHORAL_TRY(std::string out, pad(interp, Text(std::move(text)), width, " ", Align::kCenter));
  return Value::text(std::move(out));
}

Result<Value> indent(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_indent", args, {"width", "first", "blank"}));
  CHORAL_RETURN_IF_ERROR(check_defined(subject));
  if (!subject.is_string()) return invalid_argument("unsupported operand type(s) for +=: '{}' and 'str'", type_name(subject));
  std::string indention;
  if (bound[0] != nullptr && bound[0]->is_string()) {
    indention = bound[0]->str();
  } else {
    CHORAL_TRY(const int64_t width, int_argument(bound[0], 4));
    CHORAL_TRY(indention, pad(interp, Text(""), width, " ", Align::kLeft));
  }
  const bool blank = bool_argument(bound[2], false);
  const std::string text = subject.str() + "\n";
  std::string out;
  bool first = true;
  CHORAL_TRY(const TextPieces lines, split_lines(interp, text, false));
  for (const std::string_view line : lines) {
    if (!first) out += '\n';
    if (first ? bool_argument(bound[1], false) : blank || !line.empty()) out += indention;
    out.append(line);
    first = false;
    CHORAL_RETURN_IF_ERROR(interp.check_text(out.size()));
  }
  return Value::text(std::move(out));
}

Result<Value> truncate(Interpreter&, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_truncate", args, {"length", "killwords", "end", "leeway"}));
  CHORAL_TRY(const int64_t length, int_argument(bound[0], 255));
  CHORAL_TRY(const std::string_view end, text_argument(bound[2], "..."));
  CHORAL_TRY(const int64_t leeway, int_argument(bound[3] != nullptr && bound[3]->is_none() ? nullptr : bound[3], 5));
  const auto end_length = static_cast<int64_t>(code_point_count(end));
  if (length < end_length) return invalid_argument("expected length >= {}, got {}", end_length, length);
  if (leeway < 0) return invalid_argument("expected leeway >= 0, got {}", leeway);
  const auto n = length_of(subject);
  if (!n) return invalid_argument("object of type '{}' has no len()", type_name(subject));
  if (*n - leeway <= length) return subject;
  if (!subject.is_string()) return invalid_argument("a '{}' object cannot be truncated", type_name(subject));
  const std::string& text = subject.str();
  std::string_view cut = std::string_view(text).substr(0, byte_offset(text, length - end_length));
  if (!bool_argument(bound[1], false)) cut = cut.substr(0, cut.rfind(' '));
  return Value::text(std::string(cut) + std::string(end));
}

Result<Value> wordcount(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("do_wordcount", args));
  CHORAL_TRY(const std::string text, to_text(interp, subject));
  int64_t words = 0;
  bool in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const bool word = is_word(next_code_point(text, &pos));
    words += word && !in_word ? 1 : 0;
    in_word = word;
  }
  return Value::integer(words);
}

Result<Value> urlencode(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("do_urlencode", args));
  const auto quote = [&](const Value& value, bool query, std::string* out) -> Status {
    CHORAL_TRY(const std::string text, to_text(interp, value));
    CHORAL_RETURN_IF_ERROR(interp.check_text(out->size() + text.size() * 3));
    for (const char c : text) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
                         c == '-' || c == '~' || (c == '/' && !query);
      if (plain) {
        out->push_back(c);
      } else if (c == ' ' && query) {
        out->push_back('+');
      } else {
        constexpr std::string_view kHex = "0123456789ABCDEF";
        const auto byte = static_cast<unsigned char>(c);
        out->append({'%', kHex[byte >> 4], kHex[byte & 15]});
      }
    }
    return {};
  };
  std::string out;
  if (subject.is_string() || !is_iterable(subject)) {
    CHORAL_RETURN_IF_ERROR(quote(subject, false, &out));
    return Value::text(std::move(out));
  }
  const Value pairs = subject.is_dict() ? Value::object(std::make_shared<DictView>(subject, DictView::Part::kItems)) : subject;
  CHORAL_TRY(const auto items, elements_of(interp, pairs));
  for (const Value& item : *items) {
    CHORAL_TRY(const auto pair, elements_of(interp, item));
    if (pair->size() != 2) return invalid_argument("urlencode wants pairs, got {} values", pair->size());
    if (!out.empty()) out += '&';
    CHORAL_RETURN_IF_ERROR(quote((*pair)[0], true, &out));
    out += '=';
    CHORAL_RETURN_IF_ERROR(quote((*pair)[1], true, &out));
  }
  return Value::text(std::move(out));
}

Result<Value> format(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const std::string text, to_text(interp, subject));
  if (!args.positional.empty() && !args.named.empty())
    return invalid_argument("can't handle positional and keyword arguments at the same time");
  Result<Value> values = Value::none();
  if (args.named.empty()) {
    values = interp.tuple(std::move(args.positional));
  } else {
    Dict named;
    for (auto& [name, value] : args.named) named.set(Value::text(name), std::move(value));
    values = interp.dict(std::move(named));
  }
  CHORAL_RETURN_IF_ERROR(values.status());
  CHORAL_TRY(std::string out, printf_format(interp, text, *values));
  return Value::text(std::move(out));
}

Result<Value> string_filter(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_RETURN_IF_ERROR(no_arguments("string", args));
  if (subject.is_string()) return subject;
  CHORAL_TRY(std::string text, to_text(interp, subject));
  return Value::text(std::move(text));
}

// Hugging Face's tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False), not Jinja's HTML-safe one.
Result<Value> tojson(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  const auto given = [](const Value* v) { return v != nullptr && !v->is_none(); };
  JsonStyle style;
  style.ascii = bool_argument(bound[0], false);
  style.sort_keys = bool_argument(bound[3], false);
  if (given(bound[1])) {
    style.item_separator = ",";
    if (bound[1]->is_string()) {
      style.indent = bound[1]->str();
    } else {
      CHORAL_TRY(const int64_t width, int_argument(bound[1], 0));
      CHORAL_TRY(style.indent, pad(interp, Text(""), width, " ", Align::kLeft));
    }
  }
  if (given(bound[2])) {
    CHORAL_TRY(const auto pair, elements_of(interp, *bound[2]));
    if (pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_string())
      return invalid_argument("separators of tojson must be two strings");
    style.item_separator = (*pair)[0].str();
    style.key_separator = (*pair)[1].str();
  }
  CHORAL_TRY(std::string out, write_json(interp, subject, style));
  return Value::text(std::move(out));
}

constexpr FilterEntry kTextFilters[] = {
    {"upper", mapped<upper>},
    {"lower", mapped<lower>},
    {"capitalize", mapped<capitalize>},
    {"title", mapped<title_words>},
    {"e", mapped<escaped>},
    {"escape", mapped<escaped>},
    {"forceescape", mapped<escaped>},
    {"striptags", striptags},
    {"safe", string_filter},
    {"string", string_filter},
    {"trim", trim},
    {"replace", replace_filter},
    {"center", center},
    {"indent", indent},
    {"truncate", truncate},
    {"wordcount", wordcount},
    {"urlencode", urlencode},
    {"format", format},
    {"tojson", tojson},
};

}  // namespace

std::span<const FilterEntry> text_filters() { return kTextFilters; }

}  // namespace choral::text::jinja
