// One tool call as JSON, read byte by byte: {"name": "f", "arguments": {…}}, or only the arguments where the name came before.
// Arguments are handed on as the model wrote them, as soon as it is sure that they are a call's.
// Not thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "serve/answers/call_step.h"
#include "text/grammar/json_automaton.h"

namespace choral::serve {

class JsonCall {
 public:
  // `sure`: a marker said that a call comes. Without one the object must begin like a call, and must have arguments.
  explicit JsonCall(bool sure);
  static JsonCall of_arguments(std::string name);

  CallStep feed(char c);  // from the opening brace on; kDone behind the closing one

  // The call is known by name and its arguments have begun as an object, or it is done.
  bool is_known() const { return known_; }
  const std::string& name() const { return name_; }
  // Arguments that came since the last time; empty before is_known().
  std::string take_arguments();

 private:
  enum class Part { kBetween, kKey, kValue };  // of the call's own object
  enum class Field { kName, kArguments, kOther };

  CallStep end_of_key();
  CallStep begin_value(char c);
  CallStep end_of_value();
  CallStep done();

  text::JsonAutomaton json_;
  text::JsonState state_;
  bool sure_, only_arguments_ = false, known_ = false;
  Part part_ = Part::kBetween;
  Field field_ = Field::kOther;  // whose value comes, or is read
  std::string bytes_;            // of the key or the name, with quotes
  std::string name_, arguments_;
  bool has_arguments_ = false;  // read to their end
  char kind_ = 0;               // of the arguments: their first byte
};

}  // namespace choral::serve
