// A Python literal (a string, a number, True, False, None, a list, a dict with strings for keys), read byte by byte and written
// as JSON; JSON's own true, false and null are taken too. Of tuples, sets, prefixes and triple quotes nothing is read. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "serve/answers/json_string.h"

namespace choral::serve {

class PythonValue {
 public:
  enum class Step {
    kMore,
    kFailed,
    kDone,        // the byte was the value's last
    kDoneBefore,  // the value, a word or a number, ended before the byte, which is not its
  };
  // Appends JSON to `out`.
  Step feed(char c, std::string& out);
  // No more text. False: the value is not whole.
  bool finish(std::string& out);

 private:
  enum class Phase : uint8_t {
    kValue,
    kListFirst,
    kDictFirst,
    kDictKey,
    kColon,
    kAfter,
    kString,
    kEscape,
    kHex,
    kOctal,
    kWord,
    kDone
  };
  static constexpr int kMaxDepth = 60;

  Step begin_value(char c, std::string& out);
  Step open(char bracket, std::string& out);
  Step close(char bracket, std::string& out);
  Step begin_string(char quote, bool key, std::string& out);
  Step end_of_value();
  Step string_byte(char c, std::string& out);
  Step escape(char c, std::string& out);
  Step number_digit(char c, std::string& out);
  void put_code_point(std::string& out);
  bool put_word(std::string& out);
  Step after(char c, std::string& out);
  bool in_dict() const { return depth_ > 0 && (dicts_ >> (depth_ - 1) & 1); }

  Phase phase_ = Phase::kValue;
  uint64_t dicts_ = 0;  // bit d-1: what is open at depth d is a dict
  int depth_ = 0;
  char quote_ = 0;
  bool is_key_ = false;
  uint32_t code_ = 0, high_ = 0;  // of an escape; a high surrogate that waits for its low one
  int digits_ = 0;                // of it that may come
  std::string word_;
  JsonString string_;
};

// The literal as JSON; empty where it is none.
std::string json_of_python(std::string_view literal);

}  // namespace choral::serve
