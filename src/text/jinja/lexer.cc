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

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); }

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
  Status refuse(std::string_view what) { return unsupported("line {}: {}", line(), what); }

  int line() {
    const size_t end = std::max(pos_, counted_);
    line_ += static_cast<int>(std::count(source_.data() + counted_, source_.data() + end, '\n'));
    counted_ = end;
    return line_;
  }

  Token& add(TokenKind kind, std::string text) { return tokens_.emplace_back(Token{kind, line(), std::move(text)}); }

  char at(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }
  char sign_at(size_t i) const { return at(i) == '-' || at(i) == '+' ? at(i) : ' '; }
  std::string_view from(size_t i) const { return std::string_view(source_).substr(std::min(i, source_.size())); }
  size_t skip_space(size_t i) const { return i + from(i).size() - strip(from(i), true, false).size(); }

  // Where the tag `{% word %}` that begins at `i` ends, before its sign and "%}"; nothing when it is another tag.
  std::optional<size_t> tag_of(size_t i, std::string_view word) const {
    i = skip_space(i + (sign_at(i + 2) == ' ' ? 2 : 3));
    if (!from(i).starts_with(word)) return std::nullopt;
    i = skip_space(i + word.size());
    if (from(i + (sign_at(i) == ' ' ? 0 : 1)).starts_with("%}")) return i;
    return std::nullopt;
  }

  // Emits the text before a tag, cut as its sign and lstrip_blocks say.
  void add_data(std::string_view text, char sign, bool is_variable) {
    if (sign == '-') {
      text = strip(text, false, true);
    } else if (sign != '+' && !is_variable) {
      const size_t line_start = text.rfind('\n') + 1;  // 0 when there is none
      if ((line_start > 0 || line_starting_) && strip(text.substr(line_start), true, false).empty())
        text = text.substr(0, line_start);
    }
    if (!text.empty()) add(TokenKind::kData, std::string(text));
  }

  Status lex_root() {
    const std::string_view all = source_;
    size_t tag = all.find('{', pos_);
    while (tag != all.npos && at(tag + 1) != '{' && at(tag + 1) != '%' && at(tag + 1) != '#') tag = all.find('{', tag + 1);
    if (tag == all.npos) {
      add(TokenKind::kData, std::string(all.substr(pos_)));
      pos_ = all.size();
      return {};
    }
    const char kind = at(tag + 1), sign = sign_at(tag + 2);
    add_data(all.substr(pos_, tag - pos_), sign, kind == '{');
    pos_ = tag;
    if (kind == '%') {
      if (const auto end = tag_of(tag, "raw")) return lex_raw(*end);
    }
    const size_t inside = tag + (sign == ' ' ? 2 : 3);
    if (kind == '#') {
      const size_t close = all.find("#}", inside);
      if (close == all.npos) return fail("missing end of comment tag");
      return finish_tag(close, close > inside ? source_[close - 1] : ' '), Status();
    }
    add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    pos_ = inside;
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

  // From the sign or "%}" of the tag that begins it. Unlike other tags, that one never takes the line's end with it.
  Status lex_raw(size_t head_end) {
    const char head_sign = sign_at(head_end);
    if (head_sign == '+') return refuse("'+%}' after raw is not supported");
    const size_t begin = head_sign == '-' ? skip_space(head_end + 3) : head_end + 2;
    for (size_t tag = begin; (tag = source_.find("{%", tag)) != std::string::npos; ++tag) {
      const auto end = tag_of(tag, "endraw");
      if (!end) continue;
      line_starting_ = source_[begin - 1] == '\n';
      pos_ = begin;
      add_data(std::string_view(source_).substr(begin, tag - begin), sign_at(tag + 2), false);
      finish_tag(*end + (sign_at(*end) == ' ' ? 0 : 1), sign_at(*end));
      return {};
    }
    return fail("missing end of raw directive");
  }

  Status lex_tag(bool variable) {
    const std::string_view close = variable ? "}}" : "%}";
    std::string open;  // closing brackets still due
    while (pos_ < source_.size()) {
      const char c = at(pos_);
      if (open.empty()) {
        const char sign = c == '-' || (c == '+' && !variable) ? c : ' ';
        const size_t end = pos_ + (sign == ' ' ? 0 : 1);
        if (from(end).starts_with(close)) {
          add(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
          finish_tag(end, variable && sign == ' ' ? '+' : sign);
          return {};
        }
      }
      if (const size_t space = skip_space(pos_); space != pos_) {
        pos_ = space;
      } else if (is_digit(c)) {
        CHORAL_RETURN_IF_ERROR(lex_number());
      } else if (c == '"' || c == '\'') {
        CHORAL_RETURN_IF_ERROR(lex_string(c));
      } else if (is_name_char(c)) {
        size_t end = pos_;
        while (is_name_char(at(end))) ++end;
        add(TokenKind::kName, source_.substr(pos_, end - pos_));
        pos_ = end;
      } else {
        CHORAL_RETURN_IF_ERROR(lex_operator(&open));
      }
    }
    return {};  // the parser meets kEnd and says what it wanted
  }

  size_t skip_digits(size_t i) const {
    while (is_digit(at(i))) ++i;
    return i;
  }

  Status lex_number() {
    const size_t whole = skip_digits(pos_);
    size_t end = whole;
    if (pos_ == 0 || source_[pos_ - 1] != '.') {  // x.0.1 is two subscripts
      if (at(end) == '.' && is_digit(at(end + 1))) end = skip_digits(end + 1);
      if (at(end) == 'e' || at(end) == 'E') {
        const size_t digits = end + 1 + (sign_at(end + 1) == ' ' ? 0 : 1);
        if (is_digit(at(digits))) end = skip_digits(digits);
      }
    }
    std::string text = source_.substr(pos_, end - pos_);
    if (is_name_char(at(end)) || (end - pos_ > 1 && end == whole && text[0] == '0'))
      return refuse("numbers are written in decimal digits alone: 0x1F, 0o17, 0b11, 1_000 and 007 are not supported");
    Token& token = add(end > whole ? TokenKind::kFloat : TokenKind::kInteger, text);
    const char* const last = text.data() + text.size();
    if (end > whole && std::from_chars(text.data(), last, token.number).ec != std::errc())
      return fail("the number " + text + " is out of range");
    if (end == whole && std::from_chars(text.data(), last, token.integer).ec != std::errc())
      return fail("the integer " + text + " does not fit into 64 bits");
    pos_ = end;
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
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        uint32_t value = 0;
        const std::string_view hex = in.substr(i, n);
        const auto parsed = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
        if (hex.size() < n || parsed.ptr != hex.data() + n) return fail(std::string("truncated \\") + c + " escape in a string");
        if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return fail("a string escape names no Unicode character");
        append_utf8(value, &out);
        i += n;
      } else if (is_digit(c) || c == 'N' || static_cast<unsigned char>(c) >= 0x80) {
        return refuse("only the escapes \\n \\t \\\\ \\' \\\" \\x41 \\u00e9 and the like are supported in strings");
      } else if (c != '\n') {
        out.append({'\\', c});
      }
    }
    return out;
  }

  Status lex_operator(std::string* open) {
    const auto found =
        std::find_if(kOperators.begin(), kOperators.end(), [&](std::string_view op) { return from(pos_).starts_with(op); });
    if (found == kOperators.end()) {
      size_t next = pos_;
      next_code_point(source_, &next);
      return fail(fmt::format("unexpected character '{}'", from(pos_).substr(0, next - pos_)));
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

Result<std::vector<Token>> tokenize(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    text.push_back(source[i] == '\r' ? '\n' : source[i]);
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return Lexer(std::move(text)).run();
}

}  // namespace choral::text::jinja
