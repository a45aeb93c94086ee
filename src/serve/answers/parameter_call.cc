#include "serve/answers/parameter_call.h"

#include <utility>

#include "base/ascii.h"
#include "base/json_quoted.h"

namespace choral::serve {
namespace {

constexpr size_t kMaxKey = 128, kMaxParameters = 256;
constexpr size_t kMaxValue = 1 << 20;  // of what is no string, which waits for its end

}  // namespace

CallStep ParameterCall::feed(char c) {
  switch (part_) {
    case Part::kBetween: {
      if (held_.empty() && is_blank(c)) return CallStep::kMore;
      held_ += c;
      if (held_ == marks_->key_begin) return begin_key();
      if (held_ == marks_->end) return arguments_ += '}', CallStep::kDone;
      const bool may_be = marks_->key_begin.starts_with(held_) || marks_->end.starts_with(held_);
      return may_be ? CallStep::kMore : CallStep::kFailed;
    }
    case Part::kKey: return key_byte(c);
    case Part::kBeforeValue:
      if (held_.empty() && is_blank(c)) return CallStep::kMore;
      held_ += c;
      if (held_ == marks_->value_begin) return begin_value(), CallStep::kMore;
      return marks_->value_begin.starts_with(held_) ? CallStep::kMore : CallStep::kFailed;
    case Part::kValue: return value_byte(c);
  }
  return CallStep::kFailed;
}

CallStep ParameterCall::begin_key() {
  held_.clear();
  key_.clear();
  part_ = Part::kKey;
  return ++count_ > kMaxParameters ? CallStep::kFailed : CallStep::kMore;
}

CallStep ParameterCall::key_byte(char c) {
  key_ += c;
  if (key_.size() > kMaxKey) return CallStep::kFailed;
  if (!key_.ends_with(marks_->key_end)) return CallStep::kMore;
  key_.resize(key_.size() - marks_->key_end.size());
  key_ = std::string(trimmed(key_));
  if (key_.empty()) return CallStep::kFailed;
  if (marks_->value_begin.empty()) {
    begin_value();
  } else {
    part_ = Part::kBeforeValue;
  }
  return CallStep::kMore;
}

void ParameterCall::begin_value() {
  held_.clear();
  value_.clear();
  string_ = {};
  at_line_ = marks_->has_lines;
  type_ = types_->of(name_, key_);
  arguments_ += (count_ > 1 ? ", " : "") + json_quoted(key_) + ": ";
  if (type_ == ParameterType::kText) arguments_ += '"';
  part_ = Part::kValue;
}

CallStep ParameterCall::value_byte(char c) {
  if (std::exchange(at_line_, false) && c == '\n') return CallStep::kMore;
  held_ += c;
  while (!held_.empty()) {
    std::string_view rest = held_;
    if (marks_->has_lines && rest.front() == '\n') rest.remove_prefix(1);
    if (rest == marks_->value_end) {
      end_value();
      return CallStep::kMore;
    }
    if (marks_->value_end.starts_with(rest)) return CallStep::kMore;
    put_value(held_.front());
    held_.erase(0, 1);
  }
  return CallStep::kMore;
}

void ParameterCall::put_value(char c) {
  if (type_ == ParameterType::kText) return string_.push(c, arguments_);
  value_ += c;
  if (value_.size() <= kMaxValue) return;
  // A text, whatever the schema says.
  type_ = ParameterType::kText;
  arguments_ += '"';
  for (const char each : std::exchange(value_, {})) string_.push(each, arguments_);
}

void ParameterCall::end_value() {
  held_.clear();
  if (type_ == ParameterType::kText) {
    string_.finish(arguments_);
    arguments_ += '"';
  } else {
    arguments_ += ParameterTypes::json_of(value_, type_);
  }
  part_ = Part::kBetween;
}

}  // namespace choral::serve
