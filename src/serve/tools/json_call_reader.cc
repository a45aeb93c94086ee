#include "serve/tools/json_call_reader.h"

#include <simdjson.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace choral::serve {
namespace {

using text::JsonPhase;
using text::JsonState;

constexpr size_t kMaxMemberBytes = 128, kMaxNameBytes = 64;
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

bool is_function_name(std::string_view name, bool with_dots) {
  const auto fits = [with_dots](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           (with_dots && c == '.');
  };
  return !name.empty() && name.size() <= kMaxNameBytes && std::all_of(name.begin(), name.end(), fits);
}

JsonCallReader::JsonCallReader(bool sure) : json_(kLimits), sure_(sure) {}

JsonCallReader JsonCallReader::of_arguments(std::string name) {
  JsonCallReader reader(true);
  reader.only_arguments_ = true;
  reader.name_ = std::move(name);
  return reader;
}

std::string JsonCallReader::take_arguments() { return known_ ? std::exchange(arguments_, {}) : std::string(); }

JsonCallReader::Step JsonCallReader::feed(char c) {
  const JsonState before = state_;
  if (!json_.step(state_, static_cast<uint8_t>(c))) return Step::kFailed;
  if (only_arguments_) {
    if (before.phase == JsonPhase::kStart && c != '{') return Step::kMore;  // white space
    known_ = true;
    arguments_ += c;
    return json_.complete(state_) ? Step::kDone : Step::kMore;
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
      if (bytes_.size() > kMaxMemberBytes) return Step::kFailed;
      if (!state_.in_key) {
        part_ = Part::kBetween;
        return end_of_key();
      }
      break;
    case Part::kValue:
      if (field_ == Field::kArguments) arguments_ += c;
      if (field_ == Field::kName) bytes_ += c;
      if (bytes_.size() > kMaxMemberBytes) return Step::kFailed;
      // A number ends with the byte behind it; that matters to nobody, for no field that is read is a number.
      if (state_.depth <= 1 &&
          (state_.phase == JsonPhase::kAfter || state_.phase == JsonPhase::kObjectKey || state_.phase == JsonPhase::kDone)) {
        part_ = Part::kBetween;
        if (end_of_value() == Step::kFailed) return Step::kFailed;
      }
      break;
  }
  return json_.complete(state_) ? done() : Step::kMore;
}

JsonCallReader::Step JsonCallReader::end_of_key() {
  const auto key = unescaped(bytes_);
  if (!key) return Step::kFailed;
  if (*key == "name") {
    field_ = Field::kName;
    return name_.empty() ? Step::kMore : Step::kFailed;
  }
  if (*key == "arguments" || *key == "parameters") {
    field_ = Field::kArguments;
    return has_arguments_ || kind_ != 0 ? Step::kFailed : Step::kMore;
  }
  field_ = Field::kOther;
  const bool may_begin_call = *key == "id" || *key == "type";
  return sure_ || !name_.empty() || may_begin_call ? Step::kMore : Step::kFailed;
}

JsonCallReader::Step JsonCallReader::begin_value(char c) {
  if (field_ == Field::kName) {
    bytes_ = c;
    return c == '"' ? Step::kMore : Step::kFailed;
  }
  if (field_ == Field::kArguments) {
    kind_ = c;
    arguments_ = c;
    known_ = c == '{' && !name_.empty();
    return c == '{' || c == '"' || c == 'n' ? Step::kMore : Step::kFailed;
  }
  return Step::kMore;
}

JsonCallReader::Step JsonCallReader::end_of_value() {
  if (field_ == Field::kName) {
    const auto name = unescaped(std::exchange(bytes_, {}));
    if (!name || !is_function_name(*name, true)) return Step::kFailed;
    name_ = *name;
  } else if (field_ == Field::kArguments) {
    has_arguments_ = true;
    if (kind_ == 'n') arguments_ = "{}";
    if (kind_ == '"') {  // their JSON in a string
      auto text = unescaped(arguments_);
      if (!text || !(text->empty() || is_json_object(*text))) return Step::kFailed;
      arguments_ = text->empty() ? "{}" : std::move(*text);
    }
  }
  known_ = known_ || (has_arguments_ && !name_.empty());
  return Step::kMore;
}

JsonCallReader::Step JsonCallReader::done() {
  if (name_.empty() || (!has_arguments_ && !sure_)) return Step::kFailed;
  if (!has_arguments_) arguments_ = "{}";
  known_ = true;
  return Step::kDone;
}

}  // namespace choral::serve
