// One call as Gemma 4 writes it, name{key:value, …}, from its brace on, read byte by byte; its arguments are handed on as JSON.
// Strings stand between <|"|> and have no escapes; keys are bare. Strings and keys as JSON has them are taken too, which is what
// constraints write, and words as Python has them. What else has no marks is a string. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "serve/answers/call_step.h"
#include "serve/answers/json_string.h"

namespace choral::serve {

class Gemma4Call {
 public:
  explicit Gemma4Call(std::string name) : name_(std::move(name)) {}
  CallStep feed(char c);  // kDone behind the closing brace

  bool is_known() const { return known_; }  // something that only a call has stood behind the brace
  const std::string& name() const { return name_; }
  // Arguments that came since the last time; empty before is_known().
  std::string take_arguments() { return known_ ? std::exchange(arguments_, {}) : std::string(); }

 private:
  enum class Phase : uint8_t {
    kBegin,
    kFirstKey,
    kKey,
    kBareKey,
    kColon,
    kFirstValue,
    kValue,
    kWord,
    kQuote,  // within the mark that opens a string
    kString,
    kJson,
    kEscape,
    kAfter
  };
  static constexpr int kMaxDepth = 60;

  CallStep more(Phase phase) { return phase_ = phase, CallStep::kMore; }
  CallStep begin_key(char c);
  CallStep begin_value(char c);
  CallStep begin_string(char c, bool key);
  CallStep string_byte(char c);
  CallStep json_byte(char c);
  CallStep end_string();
  CallStep open(char bracket);
  CallStep close(char bracket);
  CallStep after(char c);
  void put_word(bool key);
  bool in_object() const { return (objects_ >> (depth_ - 1) & 1) != 0; }

  Phase phase_ = Phase::kBegin;
  uint64_t objects_ = 0;  // bit d-1: what is open at depth d is an object
  int depth_ = 0;
  size_t matched_ = 0;  // bytes of a mark
  bool is_key_ = false, known_ = false;
  std::string name_, word_, arguments_;
  JsonString string_;
};

}  // namespace choral::serve
