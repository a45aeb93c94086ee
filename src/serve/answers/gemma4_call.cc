#include "serve/answers/gemma4_call.h"

#include <string_view>

#include "base/ascii.h"
#include "base/json_quoted.h"
#include "serve/answers/parameter_types.h"

namespace choral::serve {
namespace {

constexpr std::string_view kStringMark = "<|\"|>";
constexpr size_t kLongestWord = 128;
constexpr size_t kLongestJson = 1 << 20;  // of a string, which waits for its end

bool ends_word(char c) { return is_blank(c) || std::string_view(",:{}[]<\"").find(c) != std::string_view::npos; }

}  // namespace

CallStep Gemma4Call::feed(char c) {
  switch (phase_) {
    case Phase::kBegin: return c == '{' ? open(c) : CallStep::kFailed;
    case Phase::kQuote:
      if (c != kStringMark[matched_]) return CallStep::kFailed;
      if (++matched_ < kStringMark.size()) return CallStep::kMore;
      matched_ = 0;
      string_ = {};
      arguments_ += '"';
      return more(Phase::kString);
    case Phase::kString: return string_byte(c);
    case Phase::kJson:
    case Phase::kEscape: return json_byte(c);
    case Phase::kBareKey:
    case Phase::kWord:
      if (!ends_word(c)) return word_ += c, word_.size() > kLongestWord ? CallStep::kFailed : CallStep::kMore;
      put_word(phase_ == Phase::kBareKey);
      phase_ = phase_ == Phase::kBareKey ? Phase::kColon : Phase::kAfter;
      return feed(c);
    default: break;
  }
  if (is_blank(c)) return CallStep::kMore;
  switch (phase_) {
    case Phase::kFirstKey:
      if (c == '}') return close(c);
      return begin_key(c);
    case Phase::kKey: return begin_key(c);
    case Phase::kColon:
      if (c != ':') return CallStep::kFailed;
      arguments_ += ": ";
      return more(Phase::kValue);
    case Phase::kFirstValue:
      if (c == ']') return close(c);
      return begin_value(c);
    case Phase::kValue: return begin_value(c);
    default: return after(c);
  }
}

CallStep Gemma4Call::begin_key(char c) {
  if (c == '<' || c == '"') return begin_string(c, true);
  if (ends_word(c)) return CallStep::kFailed;
  word_ = c;
  return more(Phase::kBareKey);
}

CallStep Gemma4Call::begin_value(char c) {
  if (c == '"') return begin_string(c, false);
  known_ = true;
  if (c == '<') return begin_string(c, false);
  if (c == '{' || c == '[') return open(c);
  if (ends_word(c)) return CallStep::kFailed;
  word_ = c;
  return more(Phase::kWord);
}

CallStep Gemma4Call::begin_string(char c, bool key) {
  is_key_ = key;
  if (c == '"') return word_ = c, more(Phase::kJson);
  matched_ = 1;
  return more(Phase::kQuote);
}

// A mark that breaks off is part of the string.
CallStep Gemma4Call::string_byte(char c) {
  if (c == kStringMark[matched_]) {
    if (++matched_ < kStringMark.size()) return CallStep::kMore;
    string_.finish(arguments_);
    arguments_ += '"';
    return end_string();
  }
  for (const char held : kStringMark.substr(0, matched_)) string_.push(held, arguments_);
  matched_ = 0;
  if (c == kStringMark.front()) return matched_ = 1, CallStep::kMore;
  string_.push(c, arguments_);
  return CallStep::kMore;
}

CallStep Gemma4Call::json_byte(char c) {
  word_ += c;
  if (word_.size() > kLongestJson) return CallStep::kFailed;
  if (phase_ == Phase::kEscape) return more(Phase::kJson);
  if (c == '\\') return more(Phase::kEscape);
  if (c != '"') return CallStep::kMore;
  if (!is_json_value(word_)) return CallStep::kFailed;
  arguments_ += word_;
  known_ = known_ || !is_key_;
  return end_string();
}

CallStep Gemma4Call::end_string() { return more(is_key_ ? Phase::kColon : Phase::kAfter); }

CallStep Gemma4Call::open(char bracket) {
  if (depth_ >= kMaxDepth) return CallStep::kFailed;
  const uint64_t bit = uint64_t{1} << depth_++;
  objects_ = bracket == '{' ? objects_ | bit : objects_ & ~bit;
  arguments_ += bracket;
  return more(bracket == '{' ? Phase::kFirstKey : Phase::kFirstValue);
}

CallStep Gemma4Call::close(char bracket) {
  if (bracket != (in_object() ? '}' : ']')) return CallStep::kFailed;
  arguments_ += bracket;
  known_ = true;
  if (--depth_ == 0) return CallStep::kDone;
  return more(Phase::kAfter);
}

CallStep Gemma4Call::after(char c) {
  if (c != ',') return close(c);
  arguments_ += ", ";
  return more(in_object() ? Phase::kKey : Phase::kValue);
}

void Gemma4Call::put_word(bool key) { arguments_ += key ? json_quoted(word_) : ParameterTypes::json_of(word_); }

}  // namespace choral::serve
