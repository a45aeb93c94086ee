// What tools' schemas say of their parameters, for forms that write an argument's value without saying what it is.
// Thread-safety: made once, then read.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace choral::serve {

enum class ParameterType {
  kText,        // a string and nothing else
  kChoice,      // one of some strings
  kTextOrNull,  // a string or null
  kValue,       // no string
  kUnknown,     // a string or something else, or nothing is said
};

class ParameterTypes {
 public:
  // Of OpenAI's `tools` array; what is not understood of it is not known.
  static ParameterTypes of_tools(std::string_view tools_json);
  ParameterType of(std::string_view function, std::string_view parameter) const;
  // What was written stands for, as JSON, where it may be no string.
  static std::string json_of(std::string_view written, ParameterType type = ParameterType::kUnknown);

 private:
  std::map<std::pair<std::string, std::string>, ParameterType, std::less<>> types_;
};

}  // namespace choral::serve
