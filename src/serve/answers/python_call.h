// One call as Python writes it, name(key=value, …), read byte by byte; its arguments are handed on as JSON. Values are literals
// (python_value.h), and each has a name. Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "serve/answers/call_step.h"
#include "serve/answers/python_value.h"

namespace choral::serve {

class PythonCall {
 public:
  CallStep feed(char c);  // from the name's first byte on; kDone behind the closing parenthesis

  // The call is known by name, and something that only a call has stood behind it.
  bool is_known() const { return known_; }
  const std::string& name() const { return name_; }
  // Arguments that came since the last time; empty before is_known().
  std::string take_arguments() { return known_ ? std::exchange(arguments_, {}) : std::string(); }

 private:
  enum class Part { kName, kFirst, kNext, kKey, kEquals, kValue, kAfter };

  CallStep after_value(char c);

  Part part_ = Part::kName;
  bool known_ = false;
  std::string name_, key_, arguments_;
  std::optional<PythonValue> value_;
};

}  // namespace choral::serve
