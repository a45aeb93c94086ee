#include "serve/answers/json_call.h"

#include <simdjson.h>

#include <optional>
#include <utility>

#include "serve/answers/function_name.h"

namespace choral::serve {
namespace {

using text::JsonPhase;
using text::JsonState;

constexpr size_t kMaxMemberBytes = 128;
// Wider than what a constraint allows: this text was written without one.
constexpr text::JsonLimits kLimits{.max_depth = 64, .max_white_space = 4096, .max_digits = 4096, .max_exponent_digits = 8};

// What a JSON string with its quotes stands for.
std::optional<std::string> unescaped(const std::string& quoted_text) {
  simdjson::dom::parser parser;
  std::string_view text;
  if (parser.parse(quoted_text).get(text)) return std::nullopt;
  return std::string(text);
}

bool is_json_object(std::string_view text) {
  const text::JsonAutomaton json(kLimits);
  JsonState state;
  for (const char c : text) {
    if (!json.step(state, static_cast<uint8_t>(c))) return false;
  }
  return json.complete(state);
}

}  // namespace

JsonCall::JsonCall(bool sure) : json_(kLimits), sure_(sure) {}

JsonCall JsonCall::of_arguments(std::string name) {
  JsonCall reader(true);
  reader.only_arguments_ = true;
  reader.name_ = std::move(name);
  return reader;
}

std::string JsonCall::take_arguments() { return known_ ? std::exchange(arguments_, {}) : std::string(); }

CallStep JsonCall::feed(char c) {
  const JsonState before = state_;
  if (!json_.step(state_, static_cast<uint8_t>(c))) return CallStep::kFailed;
  if (only_arguments_) {
    if (before.phase == JsonPhase::kStart && c != '{') return CallStep::kMore;  // white space
    known_ = true;
    arguments_ += c;
    return json_.complete(state_) ? CallStep::kDone : CallStep::kMore;
  }

  switch (part_) {
    case Part::kBetween:
      if (state_.in_key) {
        part_ = Part::kKey;
        bytes_ = c;
      } else if (before.phase == JsonPhase::kValue && state_.phase != JsonPhase::kValue) {
        part_ = Part::kValue;
        return begin_value(c);
      }
      break;
    case Part::kKey:
      bytes_ += c;
      if (bytes_.size() > kMaxMemberBytes) return CallStep::kFailed;
      if (!state_.in_key) {
        part_ = Part::kBetween;
        return end_of_key();
      }
      break;
    case Part::kValue:
      if (field_ == Field::kArguments) arguments_ += c;
      if (field_ == Field::kName) bytes_ += c;
      if (bytes_.size() > kMaxMemberBytes) return CallStep::kFailed;
      // A number ends with the byte behind it; that matters to nobody, for no field that is read is a number.
      if (state_.depth <= 1 &&
          (state_.phase == JsonPhase::kAfter || state_.phase == JsonPhase::kObjectKey || state_.phase == JsonPhase::kDone)) {
        part_ = Part::kBetween;
        if (end_of_value() == CallStep::kFailed) return CallStep::kFailed;
      }
      break;
  }
  return json_.complete(state_) ? done() : CallStep::kMore;
}

CallStep JsonCall::end_of_key() {
  const auto key = unescaped(bytes_);
  if (!key) return CallStep::kFailed;
  if (*key == "name") {
    field_ = Field::kName;
    return name_.empty() ? CallStep::kMore : CallStep::kFailed;
  }
  if (*key == "arguments" || *key == "parameters") {
    field_ = Field::kArguments;
    return has_arguments_ || kind_ != 0 ? CallStep::kFailed : CallStep::kMore;
  }
  field_ = Field::kOther;
  const bool may_begin_call = *key == "id" || *key == "type";
  return sure_ || !name_.empty() || may_begin_call ? CallStep::kMore : CallStep::kFailed;
}

CallStep JsonCall::begin_value(char c) {
  if (field_ == Field::kName) {
    bytes_ = c;
    return c == '"' ? CallStep::kMore : CallStep::kFailed;
  }
  if (field_ == Field::kArguments) {
    kind_ = c;
    arguments_ = c;
    known_ = c == '{' && !name_.empty();
    return c == '{' || c == '"' || c == 'n' ? CallStep::kMore : CallStep::kFailed;
  }
  return CallStep::kMore;
}

CallStep JsonCall::end_of_value() {
  if (field_ == Field::kName) {
    const auto name = unescaped(std::exchange(bytes_, {}));
    if (!name || !is_function_name(*name, true)) return CallStep::kFailed;
    name_ = *name;
  } else if (field_ == Field::kArguments) {
    has_arguments_ = true;
    if (kind_ == 'n') arguments_ = "{}";
    if (kind_ == '"') {  // their JSON in a string
      auto text = unescaped(arguments_);
      if (!text || !(text->empty() || is_json_object(*text))) return CallStep::kFailed;
      arguments_ = text->empty() ? "{}" : std::move(*text);
    }
  }
  known_ = known_ || (has_arguments_ && !name_.empty());
  return CallStep::kMore;
}

CallStep JsonCall::done() {
  if (name_.empty() || (!has_arguments_ && !sure_)) return CallStep::kFailed;
  if (!has_arguments_) arguments_ = "{}";
  known_ = true;
  return CallStep::kDone;
}

}  // namespace choral::serve
