#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "text/jinja/unicode.h"

namespace choral::text::jinja {
namespace {

constexpr std::array<std::string_view, 25> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                                         "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (pos_ < source_.size()) CHORAL_RETURN_IF_ERROR(lex_root());
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  Status fail(std::string_view what) { return corrupt("line {}: {}", line(), what); }

  int line() {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(counted_),
                                         source_.begin() + static_cast<ptrdiff_t>(std::max(pos_, counted_)), '\n'));
    counted_ = std::max(pos_, counted_);
    return line_;
  }

  Token& add(TokenKind kind, std::string text) { return tokens_.emplace_back(Token{kind, line(), std::move(text)}); }

  char at(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }
  bool starts(size_t i, std::string_view what) const {
    return std::string_view(source_).substr(std::min(i, source_.size())).starts_with(what);
  }

  size_t skip_space(size_t i) const {
    while (i < source_.size()) {
      size_t next = i;
      if (!is_space(next_code_point(source_, &next))) break;
      i = next;
    }
    return i;
  }

  // End of `{%- raw -%}` when one begins at `i`.
  std::optional<size_t> raw_begin(size_t i) const {
    i += 2;
    if (at(i) == '-' || at(i) == '+') ++i;
    i = skip_space(i);
    if (!starts(i, "raw")) return std::nullopt;
    i = skip_space(i + 3);
    if (starts(i, "-%}")) return skip_space(i + 3);
    if (starts(i, "%}")) return i + 2;
    return std::nullopt;
  }

  // Emits the text before a tag, cut as its sign and lstrip_blocks say.
  void add_data(std::string_view text, char sign, bool is_variable) {
    if (sign == '-') {
      text = strip(text, false, true);
    } else if (sign != '+' && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_start > 0 || line_starting_) && strip(text.substr(line_start), true, false).empty())
        text = text.substr(0, line_start);
    }
    if (!text.empty()) add(TokenKind::kData, std::string(text));
  }

  Status lex_root() {
    const std::string_view all = source_;
    size_t tag = pos_;
    while ((tag = all.find('{', tag)) != std::string_view::npos) {
      const char next = at(tag + 1);
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    if (tag == std::string_view::npos) {
      add(TokenKind::kData, std::string(all.substr(pos_)));
      pos_ = all.size();
      return {};
    }
    const char kind = at(tag + 1);
    const char sign = at(tag + 2) == '-' || at(tag + 2) == '+' ? at(tag + 2) : ' ';
    add_data(all.substr(pos_, tag - pos_), sign, kind == '{');
    pos_ = tag;
    if (kind == '%') {
      if (const auto end = raw_begin(tag)) return lex_raw(*end);
    }
    if (kind == '#') return lex_comment(tag + (sign == ' ' ? 2 : 3));
    add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    pos_ = tag + (sign == ' ' ? 2 : 3);
    return lex_tag(kind == '{');
  }

  // `close` is where "%}" or "#}" stands; a sign before it was part of the tag already.
  void finish_tag(size_t close, char sign) {
    size_t end = close + 2;
    if (sign == '-') {
      end = skip_space(end);
    } else if (sign != '+' && at(end) == '\n') {
      ++end;
    }
    line_starting_ = at(end - 1) == '\n';
    pos_ = end;
  }

  Status lex_comment(size_t begin) {
    const size_t close = source_.find("#}", begin);
    if (close == std::string::npos) return fail("missing end of comment tag");
    finish_tag(close, close > begin ? source_[close - 1] : ' ');
    return {};
  }

  Status lex_raw(size_t begin) {
    for (size_t tag = begin; (tag = source_.find("{%", tag)) != std::string::npos; ++tag) {
      size_t i = tag + 2;
      const char sign = at(i) == '-' || at(i) == '+' ? at(i++) : ' ';
      i = skip_space(i);
      if (!starts(i, "endraw")) continue;
      i = skip_space(i + 6);
      const char end_sign = at(i) == '-' || at(i) == '+' ? at(i++) : ' ';
      if (!starts(i, "%}")) continue;
      pos_ = begin;
      line_starting_ = begin > 0 && source_[begin - 1] == '\n';
      add_data(std::string_view(source_).substr(begin, tag - begin), sign, false);
      finish_tag(i, end_sign);
      return {};
    }
    return fail("missing end of raw directive");
  }

  Status lex_tag(bool variable) {
    const std::string_view close = variable ? "}}" : "%}";
    std::string open;  // closing brackets still due
    while (pos_ < source_.size()) {
      if (open.empty()) {
        const char sign = at(pos_) == '-' || (at(pos_) == '+' && !variable) ? at(pos_) : ' ';
        const size_t end = pos_ + (sign == ' ' ? 0 : 1);
        if (starts(end, close)) {
          add(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
          finish_tag(end, variable && sign == ' ' ? '+' : sign);
          return {};
        }
      }
      const size_t space = skip_space(pos_);
      if (space != pos_) {
        pos_ = space;
        continue;
      }
      const char c = at(pos_);
      if (is_ascii_digit(c)) {
        CHORAL_RETURN_IF_ERROR(lex_number());
      } else if (c == '"' || c == '\'') {
        CHORAL_RETURN_IF_ERROR(lex_string(c));
      } else if (lex_name()) {
        if (!is_identifier(tokens_.back().text)) return fail("invalid character in identifier");
      } else {
        CHORAL_RETURN_IF_ERROR(lex_operator(&open));
      }
    }
    return {};  // the parser meets kEnd and says what it wanted
  }

  bool lex_name() {
    size_t i = pos_;
    while (i < source_.size()) {
      size_t next = i;
      const char32_t c = next_code_point(source_, &next);
      if (!is_word(c) && (c < 0x80 || is_space(c) || !is_identifier("a" + encode(std::u32string(1, c))))) break;
      i = next;
    }
    if (i == pos_) return false;
    add(TokenKind::kName, source_.substr(pos_, i - pos_));
    pos_ = i;
    return true;
  }

  // Digits with single underscores between them, from `i`; `i` itself when there are none.
  size_t skip_digits(size_t i) const {
    if (!is_ascii_digit(at(i))) return i;
    while (is_ascii_digit(at(i)) || (at(i) == '_' && is_ascii_digit(at(i + 1)))) ++i;
    return i;
  }

  Status lex_number() {
    const size_t whole = skip_digits(pos_);
    size_t end = whole;
    if (pos_ == 0 || source_[pos_ - 1] != '.') {
      if (at(end) == '.') end = std::max(skip_digits(end + 1), end + 1) == end + 1 ? end : skip_digits(end + 1);
      if (at(end) == 'e' || at(end) == 'E') {
        const size_t digits = end + 1 + (at(end + 1) == '+' || at(end + 1) == '-' ? 1 : 0);
        if (is_ascii_digit(at(digits))) end = skip_digits(digits);
      }
    }
    if (end > whole) {
      std::string text = source_.substr(pos_, end - pos_);
      std::erase(text, '_');
      Token& token = add(TokenKind::kFloat, text);
      const auto parsed = std::from_chars(text.data(), text.data() + text.size(), token.number);
      if (parsed.ec != std::errc()) return fail("the number " + text + " is out of range");
      pos_ = end;
      return {};
    }
    return lex_integer(whole);
  }

  Status lex_integer(size_t whole) {
    int base = 10;
    size_t i = pos_;
    if (at(pos_) == '0') {
      const char mark = static_cast<char>(at(pos_ + 1) | 0x20);
      const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
      const size_t first = pos_ + 2 + (at(pos_ + 2) == '_' ? 1 : 0);
      if (marked != 10 && digit_value(at(first)) < marked) {
        base = marked;
        i = first;
        whole = i;
        while (digit_value(at(whole)) < base || (at(whole) == '_' && digit_value(at(whole + 1)) < base)) ++whole;
      } else {
        whole = pos_ + 1;  // 0 or 00, never 07
        while (at(whole) == '0' || (at(whole) == '_' && at(whole + 1) == '0')) ++whole;
      }
    }
    std::string digits = source_.substr(i, whole - i);
    std::erase(digits, '_');
    Token& token = add(TokenKind::kInteger, source_.substr(pos_, whole - pos_));
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), token.integer, base);
    if (parsed.ec != std::errc()) return fail("the integer " + digits + " does not fit into 64 bits");
    pos_ = whole;
    return {};
  }

  Status lex_string(char quote) {
    size_t i = pos_ + 1;
    while (i < source_.size() && source_[i] != quote) i += source_[i] == '\\' ? 2 : 1;
    if (i >= source_.size()) return fail(std::string("a string that begins with ") + quote + " has no end");
    CHORAL_TRY(std::string text, unescape(std::string_view(source_).substr(pos_ + 1, i - pos_ - 1)));
    add(TokenKind::kString, std::move(text));
    pos_ = i + 1;
    return {};
  }

  // Python's unicode-escape. An unknown escape stays as it is.
  Result<std::string> unescape(std::string_view in) {
    std::string out;
    for (size_t i = 0; i < in.size();) {
      if (in[i] != '\\') {
        out.push_back(in[i++]);
        continue;
      }
      const char c = in[i + 1];
      i += 2;
      static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
      if (const size_t simple = kFrom.find(c); simple != std::string_view::npos) {
        out.push_back(kTo[simple]);
      } else if (c == '\n') {
        continue;
      } else if (c >= '0' && c <= '7') {
        char32_t value = static_cast<char32_t>(c - '0');
        for (int k = 0; k < 2 && i < in.size() && in[i] >= '0' && in[i] <= '7'; ++k)
          value = value * 8 + static_cast<char32_t>(in[i++] - '0');
        append_utf8(value, &out);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        char32_t value = 0;
        for (size_t k = 0; k < n; ++k, ++i) {
          if (i >= in.size() || digit_value(in[i]) > 15) return fail(std::string("truncated \\") + c + " escape in a string");
          value = value << 4 | static_cast<char32_t>(digit_value(in[i]));
        }
        if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return fail("a string escape names no Unicode character");
        append_utf8(value, &out);
      } else if (c == 'N') {
        return fail("\\N{…} escapes are not supported in strings");
      } else if (static_cast<unsigned char>(c) < 0x80) {
        out.push_back('\\');
        out.push_back(c);
      } else {  // Python writes the character as an escape first, and the backslash before it swallows that one's
        size_t pos = i - 1;
        const char32_t character = next_code_point(in, &pos);
        out += character < 0x100     ? fmt::format("\\x{:02x}", static_cast<uint32_t>(character))
               : character < 0x10000 ? fmt::format("\\u{:04x}", static_cast<uint32_t>(character))
                                     : fmt::format("\\U{:08x}", static_cast<uint32_t>(character));
        i = pos;
      }
    }
    return out;
  }

  Status lex_operator(std::string* open) {
    const auto found = std::find_if(kOperators.begin(), kOperators.end(), [&](std::string_view op) { return starts(pos_, op); });
    if (found == kOperators.end()) {
      size_t next = pos_;
      const char32_t c = next_code_point(source_, &next);
      return fail(fmt::format("unexpected character '{}'", encode(std::u32string(1, c))));
    }
    const char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') open->push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open->empty()) return fail(fmt::format("unexpected '{}'", c));
      if (open->back() != c) return fail(fmt::format("unexpected '{}', expected '{}'", c, open->back()));
      open->pop_back();
    }
    add(TokenKind::kOperator, std::string(*found));
    pos_ += found->size();
    return {};
  }

  std::string source_;
  std::vector<Token> tokens_;
  size_t pos_ = 0;
  size_t counted_ = 0;  // newlines before this are in line_
  int line_ = 1;
  bool line_starting_ = true;
};

}  // namespace

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  return out;
}

Result<std::vector<Token>> tokenize(std::string_view source) {
  std::string text = normalize_newlines(source);
  if (text.ends_with('\n')) text.pop_back();
  return Lexer(std::move(text)).run();
}

}  // namespace choral::text::jinja
