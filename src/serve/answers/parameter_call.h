// A call's arguments where each stands between marks of its own (ParameterMarks), read byte by byte and handed on as JSON: what
// the tool's schema calls a string as it comes, anything else when it is whole. Not thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "serve/answers/call_marks.h"
#include "serve/answers/call_step.h"
#include "serve/answers/json_string.h"
#include "serve/answers/parameter_types.h"

namespace choral::serve {

class ParameterCall {
 public:
  // All outlive it.
  ParameterCall(std::string name, const ParameterMarks& marks, const ParameterTypes& types)
      : marks_(&marks), types_(&types), name_(std::move(name)) {}

  CallStep feed(char c);  // from behind the name on; kDone behind the mark that ends the call

  bool is_known() const { return true; }
  const std::string& name() const { return name_; }
  // Arguments that came since the last time.
  std::string take_arguments() { return std::exchange(arguments_, {}); }

 private:
  enum class Part { kBetween, kKey, kBeforeValue, kValue };

  CallStep begin_key();
  CallStep key_byte(char c);
  void begin_value();
  CallStep value_byte(char c);
  void put_value(char c);
  void end_value();

  const ParameterMarks* marks_;
  const ParameterTypes* types_;
  std::string name_, arguments_ = "{";
  Part part_ = Part::kBetween;
  size_t count_ = 0;  // of parameters
  std::string held_;  // may begin a mark
  std::string key_, value_;
  ParameterType type_ = ParameterType::kUnknown;
  bool at_line_ = false;  // a value's first byte comes
  JsonString string_;
};

}  // namespace choral::serve
