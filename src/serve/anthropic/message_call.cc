#include "serve/anthropic/message_call.h"

#include <array>
#include <utility>

#include "serve/anthropic/conversation.h"
#include "serve/openai/body_reader.h"
#include "serve/openai/engine_fields.h"
#include "serve/openai/members.h"

namespace choral::serve {
namespace {

// Said in the same words there and in a chat.
constexpr std::array<std::string_view, 5> kSaidAlike{"model", "stream", "temperature", "top_p", "max_tokens"};
// Said in other words: MessageReader reads them.
constexpr std::array<std::string_view, 8> kSaidOtherwise{"messages",    "system",   "stop_sequences", "tools",
                                                         "tool_choice", "thinking", "output_config",  "output_format"};
// About who pays, where it is computed, and what is kept: here each prefix is.
constexpr std::array<std::string_view, 8> kAboutTheirs{"metadata",      "service_tier",   "inference_geo", "speed",
                                                       "cache_control", "anthropic_beta", "betas",         "diagnostics"};

class MessageReader {
 public:
  MessageReader(Json& body, BodyNotes& notes) : body_(body), notes_(notes) {
    chat_.get_ref<Json::object_t&>().reserve(kMostMembers);  // an object that grows copies its members
  }

  Status read() {
    CHORAL_TRY(Conversation conversation, read_conversation(body_, notes_));
    chat_["messages"] = std::move(conversation.messages);
    if (conversation.ends_open) chat_["continue_final_message"] = true;
    for (auto& [name, value] : body_.items()) {
      if (value.is_null()) continue;
      notes_.param = shown(name);
      CHORAL_RETURN_IF_ERROR(read_member(name, value));
    }
    notes_.param.clear();
    // What the body says of the template's variables goes before what follows from `thinking`.
    if (thinks_) {
      Json variables{{"enable_thinking", *thinks_}, {"thinking", *thinks_}};
      if (const auto said = chat_.find("chat_template_kwargs"); said != chat_.end() && said->is_object()) variables.update(*said);
      chat_["chat_template_kwargs"] = std::move(variables);
    }
    return {};
  }

  Json take_chat() { return std::move(chat_); }
  bool shows_thoughts() const { return shows_thoughts_; }

 private:
  static constexpr size_t kMostMembers = 64;

  Status read_member(const std::string& name, Json& value) {
    if (is_one_of(kSaidAlike, name) || is_one_of(kEngineFields, name)) return chat_[name] = std::move(value), Status();
    if (name == "stop_sequences") return read_stops(value);
    if (name == "tools") return read_tools(value);
    if (name == "tool_choice") return read_choice(value);
    if (name == "thinking") return read_thinking(value);
    if (name == "output_config") return read_output(value);
    if (name == "output_format") return read_format(name, value);
    if (name == "mcp_servers" && !(value.is_array() && value.empty()))
      return unsupported("'mcp_servers' is not served: this server connects to no others; offer their tools as 'tools'");
    if (name == "container") return unsupported("'container' is not served: this server runs no code");
    if (is_one_of(kSaidOtherwise, name) || is_one_of(kAboutTheirs, name) || name == "mcp_servers") return {};
    return meet_unread(name, value, notes_, [] {
      std::vector<std::string> names(kSaidAlike.begin(), kSaidAlike.end());
      names.insert(names.end(), kSaidOtherwise.begin(), kSaidOtherwise.end());
      names.insert(names.end(), kEngineFields.begin(), kEngineFields.end());
      return names;
    });
  }

  Status read_stops(Json& value) {
    std::vector<std::string> stops;
    CHORAL_RETURN_IF_ERROR(read_value("stop_sequences", value, stops));
    if (!stops.empty()) chat_["stop"] = std::move(value);
    return {};
  }

  // {"name", "description", "input_schema"} -> {"type": "function", "function": {"name", "description", "parameters"}}.
  Status read_tools(Json& tools) {
    if (!tools.is_array()) return wrong_type("tools", "an array", tools);
    Json& out = chat_["tools"] = Json::array();
    for (size_t i = 0; i < tools.size(); ++i) {
      const std::string place = fmt::format("tools[{}]", i);
      Json& tool = tools[i];
      if (!tool.is_object()) return wrong_type(place, R"(a tool such as {"name": "f", "input_schema": {…}})", tool);
      const auto type = tool.find("type");
      if (type != tool.end() && !type->is_null() && *type != "custom")
        return unsupported("'{}' is of type {}; this server has no tools of its own: describe it with a name and an input_schema",
                           place, type->is_string() ? shown(type->get_ref<const std::string&>()) : "no string");
      warn_of_others(
          place, tool,
          {"type", "name", "description", "input_schema", "strict", "cache_control", "eager_input_streaming", "allowed_callers"},
          notes_);
      if (!tool.contains("name")) return invalid_argument("'{}.name' is missing", place);
      if (!tool.contains("input_schema")) return invalid_argument("'{}.input_schema' is missing", place);
      Json function = Json::object();
      for (const auto& [from, to] : {std::pair("name", "name"), std::pair("description", "description"),
                                     std::pair("input_schema", "parameters"), std::pair("strict", "strict")}) {
        const auto found = tool.find(from);
        if (found != tool.end() && !found->is_null()) function[to] = std::move(*found);
      }
      out.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
    return {};
  }

  Status read_choice(const Json& choice) {
    const auto type = choice.is_object() ? choice.find("type") : choice.end();
    if (!choice.is_object() || type == choice.end() || !type->is_string())
      return wrong_type("tool_choice", R"(an object such as {"type": "auto"})", choice);
    warn_of_others("tool_choice", choice, {"type", "name", "disable_parallel_tool_use"}, notes_);
    if (*type == "auto" || *type == "none") {
      chat_["tool_choice"] = *type;
    } else if (*type == "any") {
      chat_["tool_choice"] = "required";
    } else if (*type == "tool") {
      const auto name = choice.find("name");
      if (name == choice.end() || !name->is_string()) return invalid_argument("'tool_choice.name' must be the name of a tool");
      chat_["tool_choice"] = {{"type", "function"}, {"function", {{"name", *name}}}};
    } else {
      return invalid_argument("'tool_choice.type' must be auto, any, tool or none, not '{}'", shown(type->get<std::string>()));
    }
    if (const auto alone = choice.find("disable_parallel_tool_use"); alone != choice.end() && !alone->is_null()) {
      bool disabled = false;
      CHORAL_RETURN_IF_ERROR(read_value("tool_choice.disable_parallel_tool_use", *alone, disabled));
      chat_["parallel_tool_calls"] = !disabled;
    }
    return {};
  }

  Status read_thinking(const Json& thinking) {
    const auto type = thinking.is_object() ? thinking.find("type") : thinking.end();
    if (!thinking.is_object() || type == thinking.end() || !type->is_string())
      return wrong_type("thinking", R"(an object such as {"type": "enabled", "budget_tokens": 1024})", thinking);
    warn_of_others("thinking", thinking, {"type", "budget_tokens", "display"}, notes_);
    if (*type == "enabled") {
      int32_t budget = 0;
      const auto given = thinking.find("budget_tokens");
      if (given == thinking.end()) return invalid_argument("'thinking.budget_tokens' is missing");
      CHORAL_RETURN_IF_ERROR(read_value("thinking.budget_tokens", *given, budget));
      if (budget < 1) return invalid_argument("'thinking.budget_tokens' is {}; give at least 1", budget);
      chat_["thinking_budget"] = budget;
      thinks_ = true;
    } else if (*type == "disabled") {
      thinks_ = false;
    } else if (*type != "adaptive") {  // where the model decides, its template does
      return unsupported("'thinking.type' must be enabled, disabled or adaptive, not '{}'", shown(type->get<std::string>()));
    }
    if (const auto display = thinking.find("display"); display != thinking.end() && !display->is_null()) {
      if (*display != "summarized" && *display != "omitted")
        return wrong_type("thinking.display", "summarized or omitted", *display);
      shows_thoughts_ = *display == "summarized";
    }
    return {};
  }

  Status read_output(Json& output) {
    if (!output.is_object()) return wrong_type("output_config", "an object", output);
    warn_of_others("output_config", output, {"effort", "format"}, notes_);
    if (const auto effort = output.find("effort"); effort != output.end() && !effort->is_null()) {
      if (!effort->is_string()) return wrong_type("output_config.effort", "a string", *effort);
      chat_["reasoning_effort"] = std::move(*effort);
    }
    const auto format = output.find("format");
    return format == output.end() || format->is_null() ? Status() : read_format("output_config.format", *format);
  }

  // {"type": "json_schema", "schema"} -> {"type": "json_schema", "json_schema": {"schema"}}.
  Status read_format(std::string_view place, Json& format) {
    if (!format.is_object() || !format.contains("type") || format["type"] != "json_schema" || !format.contains("schema"))
      return wrong_type(place, R"({"type": "json_schema", "schema": {…}})", format);
    chat_["response_format"] = {{"type", "json_schema"},
                                {"json_schema", {{"name", "output"}, {"schema", std::move(format["schema"])}}}};
    return {};
  }

  Json& body_;
  BodyNotes& notes_;
  Json chat_ = Json::object();
  std::optional<bool> thinks_;  // absent: as the template has it
  bool shows_thoughts_ = true;
};

constexpr std::string_view kBodySchema =
    R"({"type":"object","properties":{"model":{"type":"string"},"max_tokens":{"type":"integer","minimum":1},)"
    R"("system":{"oneOf":[{"type":"string"},{"type":"array","items":{"type":"object"}}]},)"
    R"("messages":{"type":"array","minItems":1,"items":{"type":"object","properties":{"role":{"type":"string","enum":["user","assistant"]},)"
    R"("content":{"oneOf":[{"type":"string"},{"type":"array","items":{"type":"object"}}]}},"required":["role","content"]}},)"
    R"("stop_sequences":{"type":"array","items":{"type":"string"}},"temperature":{"type":"number"},"top_p":{"type":"number"},)"
    R"("top_k":{"type":"integer"},"stream":{"type":"boolean"},"tools":{"type":"array","items":{"type":"object"}},)"
    R"("tool_choice":{"type":"object"},"thinking":{"type":"object"},"output_config":{"type":"object"},"metadata":{"type":"object"}},)"
    R"("required":[)";

}  // namespace

Result<MessageCall> read_message_call(std::string_view body, const SamplingParams& defaults, bool counts, BodyNotes& notes) {
  ParsedSize size;
  CHORAL_TRY(Json json, parse_object(body, "the body", size));
  if (!counts && (!json.contains("max_tokens") || json["max_tokens"].is_null())) return missing("max_tokens", notes);
  MessageReader reader(json, notes);
  CHORAL_RETURN_IF_ERROR(reader.read());
  MessageCall call;
  CHORAL_TRY(call.chat, read_chat(reader.take_chat(), size, defaults, notes));
  call.shows_thoughts = reader.shows_thoughts();
  return call;
}

std::string message_schema() { return std::string(kBodySchema) + R"("messages","max_tokens"]})"; }
std::string message_count_schema() { return std::string(kBodySchema) + R"("messages"]})"; }

}  // namespace choral::serve
