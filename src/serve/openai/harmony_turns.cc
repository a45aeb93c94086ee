#include "serve/openai/harmony_turns.h"

#include <map>
#include <utility>

#include "serve/openai/json.h"

namespace choral::serve {
namespace {

std::string taken_text(Json& message, const char* key) {
  const auto found = message.find(key);
  if (found == message.end()) return "";
  Json value = std::move(*found);
  message.erase(found);
  return value.is_string() ? std::move(value.get_ref<std::string&>()) : "";
}

// The results that follow a turn, by their calls' ids.
std::map<std::string, size_t> results_behind(const Json& messages, size_t begin) {
  std::map<std::string, size_t> out;
  for (size_t i = begin; i < messages.size() && messages[i]["role"] == "tool"; ++i) {
    const auto of = messages[i].find("tool_call_id");
    if (of != messages[i].end() && of->is_string()) out.emplace(of->get<std::string>(), i);
  }
  return out;
}

}  // namespace

bool wants_harmony_turns(std::string_view chat_template) {
  return chat_template.find("message.thinking") != std::string_view::npos;
}

std::string harmony_turns(std::string_view messages_json) {
  Json messages = Json::parse(messages_json);
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    Json message = std::move(messages[i]);
    if (message.is_null()) continue;  // a result that stands behind its call
    std::string thoughts = taken_text(message, "reasoning_content");
    Json calls = message.contains("tool_calls") ? std::move(message["tool_calls"]) : Json();
    message.erase("tool_calls");
    const bool has_calls = calls.is_array() && !calls.empty();
    if (has_calls) {
      if (const std::string said = taken_text(message, "content"); !said.empty())
        thoughts += (thoughts.empty() ? "" : "\n\n") + said;
      message["content"] = "";
    }
    if (!thoughts.empty()) message["thinking"] = std::move(thoughts);
    if (!has_calls) {
      out.push_back(std::move(message));
      continue;
    }
    auto results = results_behind(messages, i + 1);
    for (Json& call : calls) {
      Json turn = message;
      message.erase("thinking");  // once
      turn["tool_calls"] = Json::array();
      const auto result = call.contains("id") && call["id"].is_string() ? results.extract(call["id"].get<std::string>())
                                                                        : decltype(results)::node_type();
      turn["tool_calls"].push_back(std::move(call));
      out.push_back(std::move(turn));
      if (!result.empty()) out.push_back(std::exchange(messages[result.mapped()], nullptr));
    }
  }
  return dumped(out);
}

}  // namespace choral::serve
