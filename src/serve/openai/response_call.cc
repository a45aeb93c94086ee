#include "serve/openai/response_call.h"

#include <array>

#include "serve/openai/body_reader.h"
#include "serve/openai/engine_fields.h"

namespace choral::serve {
namespace {

// OpenAI's fields that are said in the same words there and in a chat.
constexpr std::array<std::string_view, 6> kSame{"model", "temperature", "top_p", "stream", "parallel_tool_calls", "stop"};
// Said in other words, or about the answer: put_member() and read_response_call() read them.
constexpr std::array<std::string_view, 9> kOwn{"input", "instructions", "max_output_tokens", "tools",       "tool_choice",
                                               "text",  "reasoning",    "include",           "top_logprobs"};
// Without effect here: nothing is stored, no tool of OpenAI's own runs.
constexpr std::array<std::string_view, 10> kWithoutEffect{"store",
                                                          "metadata",
                                                          "user",
                                                          "truncation",
                                                          "service_tier",
                                                          "safety_identifier",
                                                          "prompt_cache_key",
                                                          "max_tool_calls",
                                                          "stream_options",
                                                          "prompt_cache_retention"};
constexpr std::array<std::string_view, 4> kStateful{"previous_response_id", "conversation", "background", "prompt"};
// What the answer repeats, with what it says where the body says nothing.
constexpr std::string_view kRepeated =
    R"({"instructions":null,"max_output_tokens":null,"max_tool_calls":null,"parallel_tool_calls":true,"temperature":null,)"
    R"("text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_logprobs":0,"top_p":null,"truncation":"disabled",)"
    R"("metadata":{},"reasoning":null,"user":null,"prompt_cache_key":null,"safety_identifier":null})";
constexpr std::string_view kLogprobs = "message.output_text.logprobs";

// What was thought before the items that follow: its text, or a summary of it.
std::string thoughts_of(const Json& item) {
  std::string text;
  for (const char* key : {"content", "summary"}) {
    const auto parts = item.find(key);
    if (!text.empty() || parts == item.end() || !parts->is_array()) continue;
    for (const Json& part : *parts) {
      if (part.is_object() && part.contains("text") && part["text"].is_string())
        text += (text.empty() ? "" : "\n") + part["text"].get<std::string>();
    }
  }
  return text;
}

// An assistant's message takes the thoughts that came before it.
void add_message(Json message, std::string& thoughts, Json& messages) {
  if (message["role"] == "assistant" && !thoughts.empty()) message["reasoning_content"] = thoughts;
  thoughts.clear();
  messages.push_back(std::move(message));
}

Status add_item(const std::string& place, Json& item, std::string& thoughts, Json& messages) {
  if (!item.is_object()) return wrong_type(place, "an item such as a message", item);
  const std::string type = item.contains("type") && item["type"].is_string() ? item["type"].get<std::string>() : "message";
  const auto text = [&](const char* key) -> Result<std::string> {
    if (!item.contains(key) || !item[key].is_string()) return invalid_argument("'{}.{}' must be a string", place, key);
    return item[key].get<std::string>();
  };
  if (type == "message") {
    if (!item.contains("role") || !item.contains("content")) return invalid_argument("'{}' needs a role and a content", place);
    add_message({{"role", std::move(item["role"])}, {"content", std::move(item["content"])}}, thoughts, messages);
  } else if (type == "function_call") {
    CHORAL_TRY(const std::string name, text("name"));
    CHORAL_TRY(const std::string arguments, text("arguments"));
    CHORAL_TRY(const std::string id, text("call_id"));
    Json call{{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
    Json* last = messages.empty() ? nullptr : &messages.back();
    // Calls that were made together stand in one message.
    if (last == nullptr || !last->contains("tool_calls")) {
      add_message({{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array()}}, thoughts, messages);
      last = &messages.back();
    }
    (*last)["tool_calls"].push_back(std::move(call));
  } else if (type == "function_call_output") {
    CHORAL_TRY(const std::string id, text("call_id"));
    if (!item.contains("output")) return invalid_argument("'{}.output' is missing", place);
    messages.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", std::move(item["output"])}});
  } else if (type == "reasoning") {
    thoughts = thoughts_of(item);
  } else {
    return unsupported("'{}' is of type '{}'; this server takes messages, function calls and their outputs", place, shown(type));
  }
  return {};
}

// Moves them out of the body, as the functions below do with what they read.
Result<Json> messages_of(Json& body) {
  Json messages = Json::array();
  if (const auto said = body.find("instructions"); said != body.end() && !said->is_null()) {
    if (!said->is_string()) return wrong_type("instructions", "a string", *said);
    messages.push_back({{"role", "system"}, {"content", std::move(*said)}});
  }
  Json& input = body["input"];
  if (input.is_string()) {
    messages.push_back({{"role", "user"}, {"content", std::move(input)}});
    return messages;
  }
  if (!input.is_array() || input.empty()) return wrong_type("input", "a text or a list of items", input);
  size_t count = 0;
  std::string thoughts;  // that no message has yet
  for (Json& item : input) CHORAL_RETURN_IF_ERROR(add_item(fmt::format("input[{}]", count++), item, thoughts, messages));
  return messages;
}

// {"type": "function", "name", "parameters", …} -> {"type": "function", "function": {…}}.
Result<Json> tools_of(Json& tools) {
  if (!tools.is_array()) return wrong_type("tools", "an array", tools);
  Json out = Json::array();
  for (Json& tool : tools) {
    if (!tool.is_object() || !tool.contains("type") || tool["type"] != "function")
      return unsupported("'tools[{}]' is no function; this server runs no tools of its own", out.size());
    Json function = Json::object();
    for (auto& [key, value] : tool.items()) {
      if (key != "type") function[key] = std::move(value);
    }
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

bool is_of_type(const Json& json, std::string_view type) {
  const auto found = json.find("type");
  return found != json.end() && *found == type;
}

// {"type": "function", "name"} -> {"type": "function", "function": {"name"}}.
Json named_function(const Json& named) {
  if (!is_of_type(named, "function") || named.contains("function") || !named.contains("name")) return named;
  return {{"type", "function"}, {"function", {{"name", named["name"]}}}};
}

// A word, a function, or {"type": "allowed_tools", "mode", "tools"} -> {"type": "allowed_tools", "allowed_tools": {…}}.
Json tool_choice_of(const Json& choice) {
  if (!is_of_type(choice, "allowed_tools") || choice.contains("allowed_tools")) return named_function(choice);
  Json allowed = Json::object();
  for (const auto& [key, value] : choice.items()) {
    if (key != "type") allowed[key] = value;
  }
  if (const auto tools = allowed.find("tools"); tools != allowed.end() && tools->is_array()) {
    for (Json& tool : *tools) tool = named_function(tool);
  }
  return {{"type", "allowed_tools"}, {"allowed_tools", std::move(allowed)}};
}

// {"type": "json_schema", "name", "schema", …} -> {"type": "json_schema", "json_schema": {…}}.
Result<Json> format_of(Json& text) {
  if (!text.is_object()) return wrong_type("text", "an object", text);
  if (!text.contains("format")) return Json(nullptr);
  Json& format = text["format"];
  if (!format.is_object() || !format.contains("type") || format["type"] != "json_schema") return std::move(format);
  Json schema = Json::object();
  for (auto& [key, value] : format.items()) {
    if (key != "type") schema[key] = std::move(value);
  }
  return Json{{"type", "json_schema"}, {"json_schema", std::move(schema)}};
}

Status put_member(const std::string& name, Json& value, Json& chat, BodyNotes& notes) {
  if (is_one_of(kSame, name) || is_one_of(kEngineFields, name)) {
    chat[name] = std::move(value);
  } else if (name == "max_output_tokens") {
    chat["max_completion_tokens"] = std::move(value);
  } else if (name == "tools") {
    CHORAL_TRY(chat["tools"], tools_of(value));
  } else if (name == "tool_choice") {
    chat["tool_choice"] = tool_choice_of(value);
  } else if (name == "include") {
    std::vector<std::string> parts;
    CHORAL_RETURN_IF_ERROR(read_value(name, value, parts));
    if (std::find(parts.begin(), parts.end(), kLogprobs) != parts.end()) chat["logprobs"] = true;
  } else if (name == "text") {
    CHORAL_TRY(Json format, format_of(value));
    if (!format.is_null()) chat["response_format"] = std::move(format);
    if (value.contains("verbosity")) chat["verbosity"] = value["verbosity"];
  } else if (name == "reasoning") {
    if (value.is_object() && value.contains("effort")) chat["reasoning_effort"] = value["effort"];
  } else if (is_one_of(kStateful, name)) {
    if (value != false)
      return unsupported("'{}' is not served: nothing is stored here; send the whole conversation as 'input'", name);
  } else if (!is_one_of(kWithoutEffect, name) && !is_one_of(kOwn, name)) {
    return meet_unread(name, value, notes, [] {
      std::vector<std::string> names(kSame.begin(), kSame.end());
      names.insert(names.end(), kOwn.begin(), kOwn.end());
      names.insert(names.end(), kEngineFields.begin(), kEngineFields.end());
      return names;
    });
  }
  return {};
}

// The members that the answer repeats, as text: a copy of them would be a second form of the body.
std::string repeated(const Json& body) {
  const Json members = Json::parse(kRepeated);
  std::string text;
  for (const auto& [name, otherwise] : members.items()) {
    const auto found = body.find(name);
    const Json& value = found == body.end() || found->is_null() ? otherwise : *found;
    text += fmt::format("{}\"{}\":{}", text.empty() ? "{" : ",", name, dumped(value));
  }
  return text + "}";
}

}  // namespace

Result<ResponseCall> read_response_call(std::string_view body, const SamplingParams& defaults, BodyNotes& notes) {
  ParsedSize size;
  CHORAL_TRY(Json json, parse_object(body, "the body", size));
  if (!json.contains("input") || json["input"].is_null()) return missing("input", notes);
  ResponseCall call;
  call.echo_json = repeated(json);
  Json chat = Json::object();
  notes.param = "input";
  CHORAL_TRY(chat["messages"], messages_of(json));
  for (auto& [name, value] : json.items()) {
    if (value.is_null()) continue;
    notes.param = shown(name);
    CHORAL_RETURN_IF_ERROR(put_member(name, value, chat, notes));
  }
  notes.param.clear();
  // Without the others it says nothing.
  if (const auto top = json.find("top_logprobs"); top != json.end() && chat.contains("logprobs")) chat["top_logprobs"] = *top;
  CHORAL_TRY(call.chat, read_chat(std::move(chat), size, defaults, notes));
  return call;
}

std::string response_schema() {
  return R"({"type":"object","properties":{"model":{"type":"string"},"input":{"oneOf":[{"type":"string"},{"type":"array","items":{"type":"object"}}]},)"
         R"("instructions":{"type":"string"},"max_output_tokens":{"type":"integer","minimum":1},"temperature":{"type":"number"},)"
         R"("top_p":{"type":"number"},"stream":{"type":"boolean"},"tools":{"type":"array","items":{"type":"object"}},)"
         R"("tool_choice":{"oneOf":[{"type":"string","enum":["none","auto","required"]},{"type":"object"}]},"text":{"type":"object"},)"
         R"("include":{"type":"array","items":{"type":"string"}},"top_logprobs":{"type":"integer","minimum":0,"maximum":20}},)"
         R"("required":["input"]})";
}

}  // namespace choral::serve
