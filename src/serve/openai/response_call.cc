#include "serve/openai/response_call.h"

#include <array>

#include "serve/openai/body_reader.h"
#include "serve/openai/engine_fields.h"
#include "serve/openai/members.h"
#include "serve/openai/metadata.h"

namespace choral::serve {
namespace {

// OpenAI's fields that are said in the same words there and in a chat.
constexpr std::array<std::string_view, 6> kSame{"model", "temperature", "top_p", "stream", "parallel_tool_calls", "stop"};
// Said in other words, or about the answer: put_member() and read_response_call() read them.
constexpr std::array<std::string_view, 14> kOwn{
    "input", "instructions", "max_output_tokens",    "tools",      "tool_choice", "text", "reasoning", "include", "top_logprobs",
    "store", "background",   "previous_response_id", "truncation", "metadata"};
// Without effect here: there is one tier, one cache, no window for what is in the background, and no tool of OpenAI's own that
// `max_tool_calls` would count.
constexpr std::array<std::string_view, 8> kWithoutEffect{
    "user",           "service_tier",   "safety_identifier",      "prompt_cache_key",
    "max_tool_calls", "stream_options", "prompt_cache_retention", "background_options"};
// What an answer can include beside its text; what others are about is never in one.
constexpr std::array<std::string_view, 9> kIncludes{"message.output_text.logprobs",
                                                    "reasoning.encrypted_content",
                                                    "message.input_image.image_url",
                                                    "file_search_call.results",
                                                    "web_search_call.results",
                                                    "web_search_call.action.sources",
                                                    "computer_call_output.output.image_url",
                                                    "code_interpreter_call.outputs",
                                                    "compaction.encrypted_content"};
constexpr std::string_view kNeedsStore =
    "needs responses that are stored: start the server with --state-dir and --store-responses, or send the whole conversation as "
    "'input'";
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

// Of the turns before: their inputs, and what was answered.
Status add_earlier(const std::vector<EarlierTurn>& turns, ParsedSize& size, std::string& thoughts, Json& messages) {
  for (const auto& turn : turns) {
    CHORAL_TRY(Json asked, parse_object(turn.input_json, "a stored input", size));
    CHORAL_TRY(Json answered, parse_object(turn.response_json, "a stored response", size));
    for (Json* items : {&asked["input"], &answered["output"]}) {
      if (!items->is_array()) return corrupt("a stored response has no items");
      for (Json& item : *items) CHORAL_RETURN_IF_ERROR(add_item("an item of a stored response", item, thoughts, messages));
    }
  }
  return {};
}

// Moves them out of the body, as the functions below do with what they read.
Result<Json> messages_of(Json& body, const std::vector<EarlierTurn>& earlier, ParsedSize& size) {
  Json messages = Json::array();
  std::string thoughts;  // that no message has yet
  if (const auto said = body.find("instructions"); said != body.end() && !said->is_null()) {
    if (!said->is_string()) return wrong_type("instructions", "a string", *said);
    messages.push_back({{"role", "system"}, {"content", std::move(*said)}});
  }
  CHORAL_RETURN_IF_ERROR(add_earlier(earlier, size, thoughts, messages));
  Json& input = body["input"];
  if (input.is_string()) {
    messages.push_back({{"role", "user"}, {"content", std::move(input)}});
    return messages;
  }
  if (!input.is_array() || input.empty()) return wrong_type("input", "a text or a list of items", input);
  size_t count = 0;
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

// Thoughts come as they are, which no summary says shorter.
Status put_reasoning(Json& reasoning, Json& chat, BodyNotes& notes) {
  if (!reasoning.is_object()) return wrong_type("reasoning", "an object", reasoning);
  warn_of_others("reasoning", reasoning, {"effort"}, notes);
  if (const auto effort = reasoning.find("effort"); effort != reasoning.end() && !effort->is_null())
    chat["reasoning_effort"] = std::move(*effort);
  return {};
}

// What the body says of storing it, and which response it goes on from.
Status read_storing(const Json& body, const ResponseMemory& memory, ResponseCall& call, BodyNotes& notes) {
  const auto said = [&](const char* name) -> const Json* {
    const auto found = body.find(name);
    if (found == body.end() || found->is_null()) return nullptr;
    notes.param = name;
    return &*found;
  };
  call.store = memory.stores;
  if (const Json* store = said("store")) CHORAL_RETURN_IF_ERROR(read_value("store", *store, call.store));
  if (call.store && !memory.stores) return unsupported("'store' {}", kNeedsStore);
  if (const Json* background = said("background")) CHORAL_RETURN_IF_ERROR(read_value("background", *background, call.background));
  if (call.background && !memory.stores) return unsupported("'background' {}", kNeedsStore);
  if (call.background && !call.store)
    return invalid_argument("'background' needs 'store', without which nobody could ask for it");
  if (const Json* previous = said("previous_response_id")) {
    CHORAL_RETURN_IF_ERROR(read_value("previous_response_id", *previous, call.previous_id));
    if (!memory.stores) return unsupported("'previous_response_id' {}", kNeedsStore);
    if (call.previous_id.empty()) return invalid_argument("'previous_response_id' is empty");
  }
  notes.param.clear();
  return {};
}

// An item of the input as GET /v1/responses/ID/input_items shows it. Of a message short forms are written out.
Json shown_item(const Json& item, const std::string& id) {
  if (!item.is_object()) return item;  // refused where it is read
  Json whole = item;
  if (!whole.contains("type")) whole["type"] = "message";
  if (!whole.contains("id") || !whole["id"].is_string()) whole["id"] = id;
  if (!whole.contains("status") && whole["type"] != "reasoning") whole["status"] = "completed";
  if (whole["type"] == "message" && whole.contains("content") && whole["content"].is_string()) {
    const bool is_answer = whole.contains("role") && whole["role"] == "assistant";
    Json part{{"type", is_answer ? "output_text" : "input_text"}, {"text", std::move(whole["content"])}};
    if (is_answer) part["annotations"] = Json::array();
    whole["content"] = Json::array();
    whole["content"].push_back(std::move(part));
  }
  return whole;
}

std::string stored_input(const Json& input) {
  Json items = Json::array();
  if (input.is_string()) {
    items.push_back(shown_item({{"role", "user"}, {"content", input}}, "msg_0"));
  } else if (input.is_array()) {
    for (const Json& item : input) items.push_back(shown_item(item, fmt::format("msg_{}", items.size())));
  }
  return dumped({{"input", std::move(items)}});
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
    for (const auto& part : parts) {
      if (!is_one_of(kIncludes, part)) return unsupported("'include' has '{}', which is not known here", shown(part));
    }
    if (std::find(parts.begin(), parts.end(), kLogprobs) != parts.end()) chat["logprobs"] = true;
  } else if (name == "text") {
    CHORAL_TRY(Json format, format_of(value));
    if (!format.is_null()) chat["response_format"] = std::move(format);
    if (value.contains("verbosity")) chat["verbosity"] = value["verbosity"];
  } else if (name == "reasoning") {
    return put_reasoning(value, chat, notes);
  } else if (name == "truncation") {
    if (value == "auto")
      return unsupported(
          "'truncation' of auto is not served: what does not fit is refused; 'truncate_prompt_tokens': -1 cuts it");
    if (value != "disabled") return wrong_type(name, "disabled", value);
  } else if (name == "metadata") {
    return check_metadata(name, value);
  } else if (name == "context_management") {
    return unsupported("'context_management' is not served: no conversation is made shorter by itself");
  } else if (name == "conversation" || name == "prompt") {
    return unsupported("'{}' is not served: this server keeps responses, but no {}s", name, name);
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

// With what a tool says where the body says nothing.
std::string repeated_tools(const Json& tools) {
  std::string text;
  for (const Json& tool : tools) {
    std::string one = dumped(tool);
    for (const auto& [name, otherwise] : {std::pair("parameters", "null"), std::pair("strict", "false")}) {
      if (!tool.is_object() || tool.empty() || tool.contains(name)) continue;
      one.pop_back();
      one += fmt::format(",\"{}\":{}}}", name, otherwise);
    }
    text += (text.empty() ? "[" : ",") + one;
  }
  return text.empty() ? "[]" : text + "]";
}

// The members that the answer repeats, as text: a copy of them would be a second form of the body.
std::string repeated(const Json& body) {
  const Json members = Json::parse(kRepeated);
  std::string text;
  for (const auto& [name, otherwise] : members.items()) {
    const auto found = body.find(name);
    const Json& value = found == body.end() || found->is_null() ? otherwise : *found;
    const bool are_tools = name == "tools" && value.is_array();
    text += fmt::format("{}\"{}\":{}", text.empty() ? "{" : ",", name, are_tools ? repeated_tools(value) : dumped(value));
  }
  return text + "}";
}

}  // namespace

Result<ResponseCall> read_response_call(std::string_view body, const SamplingParams& defaults, BodyNotes& notes,
                                        const ResponseMemory& memory) {
  ParsedSize size;
  CHORAL_TRY(Json json, parse_object(body, "the body", size));
  if (!json.contains("input") || json["input"].is_null()) return missing("input", notes);
  ResponseCall call;
  CHORAL_RETURN_IF_ERROR(read_storing(json, memory, call, notes));
  std::vector<EarlierTurn> earlier;
  if (!call.previous_id.empty()) {
    notes.param = "previous_response_id";
    CHORAL_TRY(earlier, memory.earlier(call.previous_id));
  }
  call.echo_json = repeated(json);
  if (call.store) call.input_json = stored_input(json["input"]);
  constexpr size_t kMostMembers = 64;
  Json chat = Json::object();
  chat.get_ref<Json::object_t&>().reserve(kMostMembers);  // an object that grows copies its members
  notes.param = "input";
  CHORAL_TRY(chat["messages"], messages_of(json, earlier, size));
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
         R"("include":{"type":"array","items":{"type":"string"}},"store":{"type":"boolean"},"background":{"type":"boolean"},)"
         R"("previous_response_id":{"type":"string"},"metadata":{"type":"object"},"top_logprobs":{"type":"integer","minimum":0,"maximum":20}},)"
         R"("required":["input"]})";
}

}  // namespace choral::serve
