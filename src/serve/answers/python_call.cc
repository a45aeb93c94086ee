#include "serve/answers/python_call.h"

#include "base/ascii.h"
#include "serve/answers/function_name.h"

namespace choral::serve {

CallStep PythonCall::feed(char c) {
  const bool in_name = is_function_name({&c, 1}, part_ == Part::kName);
  switch (part_) {
    case Part::kName:
      if (in_name) return name_ += c, name_.size() > 64 ? CallStep::kFailed : CallStep::kMore;
      if (c != '(' || !is_function_name(name_, true)) return CallStep::kFailed;
      arguments_ = "{";
      part_ = Part::kFirst;
      return CallStep::kMore;
    case Part::kFirst:
    case Part::kNext:  // behind a comma
      if (is_blank(c)) return CallStep::kMore;
      if (c == ')') {
        known_ = true;
        arguments_ += '}';
        return CallStep::kDone;
      }
      if (!in_name || c == '-') return CallStep::kFailed;
      if (part_ == Part::kNext) arguments_ += ", ";
      key_ = c;
      part_ = Part::kKey;
      return CallStep::kMore;
    case Part::kKey:
      if (in_name && c != '-') return key_ += c, key_.size() > 128 ? CallStep::kFailed : CallStep::kMore;
      part_ = Part::kEquals;
      [[fallthrough]];
    case Part::kEquals:
      if (is_blank(c)) return CallStep::kMore;
      if (c != '=') return CallStep::kFailed;
      arguments_ += '"' + key_ + "\": ";
      value_.emplace();
      part_ = Part::kValue;
      return CallStep::kMore;
    case Part::kValue: {
      const size_t before = arguments_.size();
      const PythonValue::Step step = value_->feed(c, arguments_);
      known_ = known_ || (step != PythonValue::Step::kFailed && arguments_.size() > before);  // it is the beginning of a literal
      switch (step) {
        case PythonValue::Step::kMore: return CallStep::kMore;
        case PythonValue::Step::kFailed: return CallStep::kFailed;
        case PythonValue::Step::kDone: return part_ = Part::kAfter, CallStep::kMore;
        case PythonValue::Step::kDoneBefore: break;
      }
      part_ = Part::kAfter;
      return after_value(c);
    }
    case Part::kAfter: return after_value(c);
  }
  return CallStep::kFailed;
}

CallStep PythonCall::after_value(char c) {
  if (is_blank(c)) return CallStep::kMore;
  if (c == ',') return part_ = Part::kNext, CallStep::kMore;
  if (c != ')') return CallStep::kFailed;
  arguments_ += '}';
  return CallStep::kDone;
}

}  // namespace choral::serve
