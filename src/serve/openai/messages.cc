#include "serve/openai/messages.h"

#include <array>

#include "serve/openai/json.h"

namespace choral::serve {
namespace {

constexpr size_t kMaxMessages = 4096;
constexpr std::array<std::string_view, 6> kRoles{"system", "user", "assistant", "tool", "developer", "function"};

Status check_role(const std::string& place, Json& message) {
  const auto role = message.find("role");
  if (role == message.end()) return invalid_argument("'{}.role' is missing", place);
  if (!role->is_string() || std::find(kRoles.begin(), kRoles.end(), role->get_ref<const std::string&>()) == kRoles.end())
    return wrong_type(place + ".role", "system, developer, user, assistant or tool", *role);
  if (*role == "developer") *role = "system";
  return {};
}

// Parts of text become one text, with a line between them as vLLM has it.
Status flatten_content(const std::string& place, Json& content) {
  if (content.is_string() || content.is_null()) return {};
  if (!content.is_array()) return wrong_type(place, "a text or a list of parts", content);
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string part_place = fmt::format("{}[{}]", place, i);
    if (i > 0) text += '\n';
    if (part.is_string()) {
      text += part.get_ref<const std::string&>();
      continue;
    }
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string())
      return wrong_type(part_place, R"(a part such as {"type": "text", "text": …})", part);
    const std::string type = part["type"].get<std::string>();
    if (type != "text" && type != "input_text" && type != "output_text" && type != "refusal")
      return unsupported("'{}' is a part of type '{}'; this server reads text", part_place, shown(type));
    const std::string key = type == "refusal" ? type : "text";
    if (!part.contains(key) || !part[key].is_string()) return invalid_argument("'{}.{}' must be a string", part_place, key);
    text += part[key].get_ref<const std::string&>();
  }
  content = std::move(text);
  return {};
}

Status read_tool_calls(const std::string& place, Json& calls, ParsedSize& size) {
  if (!calls.is_array()) return wrong_type(place, "an array", calls);
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string call_place = fmt::format("{}[{}].function", place, i);
    if (!calls[i].is_object() || !calls[i].contains("function") || !calls[i]["function"].is_object())
      return invalid_argument("'{}' must be an object with name and arguments", call_place);
    Json& function = calls[i]["function"];
    if (!function.contains("name") || !function["name"].is_string())
      return invalid_argument("'{}.name' must be a string", call_place);
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
    const std::string text = arguments->get<std::string>();
    if (text.empty()) {
      *arguments = Json::object();
      continue;
    }
    auto object = parse_object(text, call_place, size);
    if (object.status().code() == Code::kTooLarge) return std::move(object).status().while_(call_place);
    if (!object.ok()) return invalid_argument("'{}.arguments' must be the text of a JSON object", call_place);
    *arguments = std::move(*object);
  }
  return {};
}

// What was thought in an earlier turn, by either of its names, reaches templates by the one that they know.
Status read_reasoning(const std::string& place, Json& message) {
  for (const char* name : {"reasoning_content", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end()) continue;
    Json thoughts = std::move(*found);
    message.erase(found);
    if (thoughts.is_null()) continue;
    if (!thoughts.is_string()) return wrong_type(fmt::format("{}.{}", place, name), "a string", thoughts);
    if (!message.contains("reasoning_content")) message["reasoning_content"] = std::move(thoughts);
  }
  return {};
}

Status read_message(const std::string& place, Json& message, ParsedSize& size) {
  if (!message.is_object()) return wrong_type(place, R"(a message such as {"role": "user", "content": "Hello"})", message);
  CHORAL_RETURN_IF_ERROR(check_role(place, message));
  const bool has_calls = message.contains("tool_calls") && !message["tool_calls"].is_null();
  if (!message.contains("content")) {
    if (message["role"] != "assistant") return invalid_argument("'{}.content' is missing", place);
    message["content"] = has_calls ? Json("") : Json(nullptr);
  }
  CHORAL_RETURN_IF_ERROR(flatten_content(place + ".content", message["content"]));
  // Templates add a text to what they write; none of them means "None".
  if (message["content"].is_null()) message["content"] = "";
  if (has_calls) CHORAL_RETURN_IF_ERROR(read_tool_calls(place + ".tool_calls", message["tool_calls"], size));
  return read_reasoning(place, message);
}

}  // namespace

Result<std::string> template_messages(Json messages, ParsedSize& size) {
  if (!messages.is_array()) return wrong_type("messages", "a list of messages", messages);
  if (messages.empty()) return invalid_argument("'messages' must be a list of at least one message");
  if (messages.size() > kMaxMessages)
    return too_large("'messages' has {} entries; at most {} are read", messages.size(), kMaxMessages);
  for (size_t i = 0; i < messages.size(); ++i)
    CHORAL_RETURN_IF_ERROR(read_message(fmt::format("messages[{}]", i), messages[i], size));
  return dumped(messages);
}

}  // namespace choral::serve
