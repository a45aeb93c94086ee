#include "tools/load/answer_reader.h"

#include "base/printable.h"
#include "io/config_map.h"

namespace choral::tools {
namespace {

using io::ConfigMap;
using io::ConfigObject;
using io::ConfigValue;

constexpr size_t kMaxWords = 300;
constexpr io::JsonLimits kLimits{.max_bytes = 64 << 20, .max_depth = 64, .max_values = 4'000'000};
constexpr int64_t kMaxTokens = int64_t{1} << 40;

const ConfigValue* member(const ConfigValue* value, std::string_view key) {
  const auto* object = value == nullptr ? nullptr : value->if_object();
  return object == nullptr ? nullptr : object->find(key);
}

bool is_text(const ConfigValue* value) {
  const auto* text = value == nullptr ? nullptr : value->if_string();
  return text != nullptr && !text->empty();
}

bool has_text(const ConfigValue& choice) {
  if (is_text(member(&choice, "text"))) return true;
  for (const std::string_view part : {"delta", "message"}) {
    const auto* message = member(&choice, part);
    for (const std::string_view key : {"content", "reasoning_content", "reasoning", "refusal"}) {
      if (is_text(member(message, key))) return true;
    }
    const auto* calls = member(message, "tool_calls");
    if (calls != nullptr && calls->if_array() != nullptr && !calls->if_array()->empty()) return true;
  }
  return false;
}

std::string words_of_error(const ConfigValue& error) {
  if (is_text(&error)) return *error.if_string();
  const auto* message = member(&error, "message");
  return is_text(message) ? *message->if_string() : error.to_json();
}

std::optional<int64_t> count(const ConfigMap& usage, std::string_view key) {
  const auto* value = usage.find(key);
  const auto number = value == nullptr ? std::nullopt : value->as_int();
  return number && *number >= 0 && *number <= kMaxTokens ? number : std::nullopt;
}

std::string cut(std::string_view text) {
  std::string line = terminal_line(text.substr(0, kMaxWords));
  return text.size() > kMaxWords ? line + "…" : line;
}

}  // namespace

Result<AnswerPiece> read_answer(std::string_view json) {
  CHORAL_TRY(const auto map, ConfigMap::parse_json(json, "the answer", kLimits));
  AnswerPiece out;
  if (const auto* error = map.find("error")) {
    out.error = cut(words_of_error(*error));
    return out;
  }
  const auto* found = map.find("choices");
  const auto* choices = found == nullptr ? nullptr : found->if_array();
  if (choices == nullptr) return corrupt("the answer has no list of choices");
  for (const auto& choice : *choices) {
    out.has_text |= has_text(choice);
    out.finished |= is_text(member(&choice, "finish_reason"));
  }
  CHORAL_TRY(const auto usage, map.get_map_or_empty("usage"));
  out.prompt_tokens = count(usage, "prompt_tokens");
  out.completion_tokens = count(usage, "completion_tokens");
  return out;
}

std::string refusal_text(std::string_view body) {
  const auto map = ConfigMap::parse_json(body, "the answer", kLimits);
  if (!map.ok()) return cut(body);
  for (const std::string_view key : {"error", "message", "detail"}) {
    if (const auto* error = map->find(key)) return cut(words_of_error(*error));
  }
  return cut(body);
}

Result<std::string> first_model(std::string_view json) {
  CHORAL_TRY(const auto map, ConfigMap::parse_json(json, "GET /v1/models", kLimits));
  CHORAL_TRY(const auto models, map.get_maps("data"));
  if (models.empty()) return not_found("the server lists no model");
  return models.front().get_string("id");
}

}  // namespace choral::tools
