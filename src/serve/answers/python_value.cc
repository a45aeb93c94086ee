#include "serve/answers/python_value.h"

#include "base/ascii.h"
#include "text/unicode.h"

namespace choral::serve {
namespace {

constexpr size_t kMaxWord = 64;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '.' || c == '+' || c == '-';
}

}  // namespace

PythonValue::Step PythonValue::feed(char c, std::string& out) {
  switch (phase_) {
    case Phase::kString: return string_byte(c, out);
    case Phase::kEscape: return escape(c, out);
    case Phase::kHex:
    case Phase::kOctal: return number_digit(c, out);
    case Phase::kWord:
      if (is_word(c)) return word_ += c, word_.size() > kMaxWord ? Step::kFailed : Step::kMore;
      if (!put_word(out)) return Step::kFailed;
      if (end_of_value() == Step::kDone) return Step::kDoneBefore;
      return after(c, out);
    case Phase::kDone: return Step::kFailed;
    default: break;
  }
  if (is_blank(c)) return Step::kMore;
  switch (phase_) {
    case Phase::kListFirst:
      if (c == ']') return close(c, out);
      return begin_value(c, out);
    case Phase::kDictFirst:
    case Phase::kDictKey:
      if (c == '}' && phase_ == Phase::kDictFirst) return close(c, out);
      return c == '"' || c == '\'' ? begin_string(c, true, out) : Step::kFailed;
    case Phase::kColon:
      if (c != ':') return Step::kFailed;
      out += ": ";
      phase_ = Phase::kValue;
      return Step::kMore;
    case Phase::kAfter: return after(c, out);
    default: return begin_value(c, out);
  }
}

bool PythonValue::finish(std::string& out) {
  if (phase_ == Phase::kWord && depth_ == 0) return put_word(out);
  return phase_ == Phase::kDone;
}

PythonValue::Step PythonValue::begin_value(char c, std::string& out) {
  if (c == '"' || c == '\'') return begin_string(c, false, out);
  if (c == '[' || c == '{') return open(c, out);
  if (!is_word(c)) return Step::kFailed;
  phase_ = Phase::kWord;
  word_ = c;
  return Step::kMore;
}

PythonValue::Step PythonValue::open(char bracket, std::string& out) {
  if (depth_ >= kMaxDepth) return Step::kFailed;
  const uint64_t bit = uint64_t{1} << depth_++;
  dicts_ = bracket == '{' ? dicts_ | bit : dicts_ & ~bit;
  out += bracket;
  phase_ = bracket == '{' ? Phase::kDictFirst : Phase::kListFirst;
  return Step::kMore;
}

PythonValue::Step PythonValue::close(char bracket, std::string& out) {
  if (bracket != (in_dict() ? '}' : ']')) return Step::kFailed;
  out += bracket;
  --depth_;
  return end_of_value();
}

PythonValue::Step PythonValue::after(char c, std::string& out) {
  if (is_blank(c)) return phase_ = Phase::kAfter, Step::kMore;
  if (c != ',') return close(c, out);
  out += ", ";
  phase_ = in_dict() ? Phase::kDictKey : Phase::kValue;
  return Step::kMore;
}

PythonValue::Step PythonValue::end_of_value() {
  phase_ = depth_ == 0 ? Phase::kDone : Phase::kAfter;
  return depth_ == 0 ? Step::kDone : Step::kMore;
}

PythonValue::Step PythonValue::begin_string(char quote, bool key, std::string& out) {
  quote_ = quote;
  is_key_ = key;
  string_ = {};
  high_ = 0;
  out += '"';
  phase_ = Phase::kString;
  return Step::kMore;
}

PythonValue::Step PythonValue::string_byte(char c, std::string& out) {
  if (c == '\\') return phase_ = Phase::kEscape, Step::kMore;
  if (high_ != 0) code_ = 0xFFFD, high_ = 0, put_code_point(out);
  if (c != quote_) {
    if (c == '\n') return Step::kFailed;  // no string of one line goes on there
    string_.push(c, out);
    return Step::kMore;
  }
  string_.finish(out);
  out += '"';
  if (!is_key_) return end_of_value();
  phase_ = Phase::kColon;
  return Step::kMore;
}

PythonValue::Step PythonValue::escape(char c, std::string& out) {
  phase_ = Phase::kString;
  const auto number = [this](Phase phase, int digits) {
    phase_ = phase;
    digits_ = digits;
    code_ = 0;
    return Step::kMore;
  };
  if (c == 'u') return number(Phase::kHex, 4);
  if (high_ != 0) code_ = 0xFFFD, high_ = 0, put_code_point(out);
  const auto put = [&](char what) { return string_.push(what, out), Step::kMore; };
  switch (c) {
    case 'x': return number(Phase::kHex, 2);
    case 'U': return number(Phase::kHex, 8);
    case 'n': return put('\n');
    case 't': return put('\t');
    case 'r': return put('\r');
    case 'a': return put('\a');
    case 'b': return put('\b');
    case 'f': return put('\f');
    case 'v': return put('\v');
    case '\n': return Step::kMore;
    case '\\':
    case '\'':
    case '"':
    case '/': return put(c);
    default: break;
  }
  if (c >= '0' && c <= '7') {
    static_cast<void>(number(Phase::kOctal, 2));
    code_ = static_cast<uint32_t>(c - '0');
    return Step::kMore;
  }
  string_.push('\\', out);  // as Python has it
  return put(c);
}

PythonValue::Step PythonValue::number_digit(char c, std::string& out) {
  if (phase_ == Phase::kOctal) {
    if (c < '0' || c > '7') {
      put_code_point(out);
      phase_ = Phase::kString;
      return string_byte(c, out);
    }
    code_ = code_ * 8 + static_cast<uint32_t>(c - '0');
  } else {
    const int value = hex_digit(c);
    if (value < 0) return Step::kFailed;
    code_ = code_ * 16 + static_cast<uint32_t>(value);
  }
  if (--digits_ > 0) return Step::kMore;
  phase_ = Phase::kString;
  const bool is_low = code_ >= 0xDC00 && code_ < 0xE000;
  if (high_ != 0 && is_low) {
    code_ = 0x10000 + ((high_ - 0xD800) << 10) + (code_ - 0xDC00);
    high_ = 0;
  } else if (high_ != 0) {
    const uint32_t code = code_;
    code_ = 0xFFFD;
    put_code_point(out);
    code_ = code;
    high_ = 0;
  }
  if (code_ >= 0xD800 && code_ < 0xDC00) {
    high_ = code_;
    return Step::kMore;
  }
  put_code_point(out);
  return Step::kMore;
}

void PythonValue::put_code_point(std::string& out) {
  const bool is_none = code_ > 0x10FFFF || (code_ >= 0xD800 && code_ < 0xE000);
  std::string character;
  text::append_utf8(is_none ? 0xFFFD : code_, character);
  for (const char c : character) string_.push(c, out);
}

bool PythonValue::put_word(std::string& out) {
  if (word_ == "True" || word_ == "true") return out += "true", true;
  if (word_ == "False" || word_ == "false") return out += "false", true;
  if (word_ == "None" || word_ == "null") return out += "null", true;
  if (!is_json_value(word_)) return false;
  out += word_;
  return true;
}

std::string json_of_python(std::string_view literal) {
  PythonValue value;
  std::string out;
  for (size_t i = 0; i < literal.size(); ++i) {
    const PythonValue::Step step = value.feed(literal[i], out);
    if (step == PythonValue::Step::kDone) return i + 1 == literal.size() ? out : "";
    if (step != PythonValue::Step::kMore) return "";
  }
  return value.finish(out) ? out : "";
}

}  // namespace choral::serve
