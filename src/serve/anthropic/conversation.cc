#include "serve/anthropic/conversation.h"

#include <utility>

#include "serve/openai/members.h"

namespace choral::serve {
namespace {

// Claude Code's first words of a system prompt: a number of its own that changes with each request and says nothing to a model.
// In the prompt it would keep every prefix from being found again.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

// Without the line that is one.
std::string without_billing_header(std::string text) {
  if (!text.starts_with(kBillingHeader)) return text;
  const size_t end = text.find('\n');
  return end == text.npos ? std::string() : text.substr(end + 1);
}

// Moves it out.
Result<std::string> string_member(const std::string& place, Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return invalid_argument("'{}.{}' must be a string", place, name);
  return std::move(found->get_ref<std::string&>());
}

Result<std::string> type_of(const std::string& place, Json& block) {
  if (!block.is_object()) return wrong_type(place, R"(a block such as {"type": "text", "text": …})", block);
  const auto type = block.find("type");
  if (type == block.end() || !type->is_string()) return invalid_argument("'{}.type' must be a string", place);
  return type->get<std::string>();
}

Status unread_block(std::string_view place, std::string_view type) {
  return unsupported("'{}' is a block of type '{}'; this server reads text, calls of tools and their results", place,
                     shown(type));
}

Json text_part_of(std::string text) { return {{"type", "text"}, {"text", std::move(text)}}; }

class ConversationReader {
 public:
  explicit ConversationReader(BodyNotes& notes) : notes_(notes) {}

  Status read_system(Json& system) {
    if (system.is_string()) {
      std::string text = without_billing_header(std::move(system.get_ref<std::string&>()));
      if (!text.empty()) turn("system")["content"].push_back(text_part_of(std::move(text)));
      return {};
    }
    if (!system.is_array()) return wrong_type("system", "a text or a list of blocks of text", system);
    for (size_t i = 0; i < system.size(); ++i) {
      CHORAL_TRY(std::string text, text_block(fmt::format("system[{}]", i), system[i]));
      text = without_billing_header(std::move(text));
      if (!text.empty()) turn("system")["content"].push_back(text_part_of(std::move(text)));
    }
    return {};
  }

  Status read_message(const std::string& place, Json& message) {
    if (!message.is_object()) return wrong_type(place, R"(a message such as {"role": "user", "content": "Hello"})", message);
    CHORAL_TRY(const std::string role, string_member(place, message, "role"));
    if (role != "user" && role != "assistant" && role != "system")
      return invalid_argument("'{}.role' must be user, assistant or system, not '{}'", place, shown(role));
    warn_of_others(place, message, {"role", "content"}, notes_);
    const std::string inside = place + ".content";
    const auto content = message.find("content");
    if (content == message.end()) return invalid_argument("'{}' is missing", inside);
    if (content->is_string()) {
      turn(role)["content"].push_back(text_part_of(std::move(content->get_ref<std::string&>())));
      return {};
    }
    if (!content->is_array()) return wrong_type(inside, "a text or a list of blocks", *content);
    if (content->empty() && role != "assistant") return invalid_argument("'{}' is empty", inside);
    if (content->empty()) turn(role);
    for (size_t i = 0; i < content->size(); ++i)
      CHORAL_RETURN_IF_ERROR(read_block(fmt::format("{}[{}]", inside, i), role, (*content)[i]));
    return {};
  }

  Conversation take() {
    Conversation read;
    const Json* const last = messages_.empty() ? nullptr : &messages_.back();
    read.ends_open = last != nullptr && (*last)["role"] == "assistant" && !last->contains("tool_calls");
    read.messages = std::move(messages_);
    return read;
  }

 private:
  // The message that the role's next block belongs to: messages of one role that follow one another are one turn.
  Json& turn(std::string_view role) {
    if (messages_.empty() || messages_.back()["role"] != role) messages_.push_back({{"role", role}, {"content", Json::array()}});
    return messages_.back();
  }

  Result<std::string> text_block(const std::string& place, Json& block) {
    CHORAL_TRY(const std::string type, type_of(place, block));
    if (type != "text") return unread_block(place, type);
    warn_of_others(place, block, {"type", "text", "cache_control", "citations"}, notes_);
    return string_member(place, block, "text");
  }

  Status read_block(const std::string& place, std::string_view role, Json& block) {
    CHORAL_TRY(const std::string type, type_of(place, block));
    if (type == "text") {
      CHORAL_TRY(std::string text, text_block(place, block));
      turn(role)["content"].push_back(text_part_of(std::move(text)));
      return {};
    }
    if (role == "user" && type == "tool_result") return read_result(place, block);
    if (role == "assistant" && type == "tool_use") return read_call(place, block);
    if (role == "assistant" && type == "thinking") return read_thought(place, block);
    // Nobody but Anthropic can read what is in it.
    if (role == "assistant" && type == "redacted_thinking") return turn(role), Status();
    return unread_block(place, type);
  }

  Status read_thought(const std::string& place, Json& block) {
    warn_of_others(place, block, {"type", "thinking", "signature", "cache_control"}, notes_);
    CHORAL_TRY(const std::string thoughts, string_member(place, block, "thinking"));
    Json& message = turn("assistant");
    if (thoughts.empty()) return {};
    if (!message.contains("reasoning_content")) message["reasoning_content"] = "";
    message["reasoning_content"].get_ref<std::string&>() += thoughts;
    return {};
  }

  Status read_call(const std::string& place, Json& block) {
    warn_of_others(place, block, {"type", "id", "name", "input", "cache_control", "caller"}, notes_);
    CHORAL_TRY(const std::string id, string_member(place, block, "id"));
    CHORAL_TRY(const std::string name, string_member(place, block, "name"));
    const auto input = block.find("input");
    if (input == block.end() || !input->is_object()) return invalid_argument("'{}.input' must be an object", place);
    Json& message = turn("assistant");
    if (!message.contains("tool_calls")) message["tool_calls"] = Json::array();
    message["tool_calls"].push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", std::move(*input)}}}});
    return {};
  }

  // A message of its own, wherever it stands among the user's blocks.
  Status read_result(const std::string& place, Json& block) {
    warn_of_others(place, block, {"type", "tool_use_id", "content", "is_error", "cache_control"}, notes_);
    CHORAL_TRY(const std::string id, string_member(place, block, "tool_use_id"));
    bool is_error = false;
    if (const auto said = block.find("is_error"); said != block.end() && !said->is_null())
      CHORAL_RETURN_IF_ERROR(read_value(place + ".is_error", *said, is_error));
    Json parts = Json::array();
    if (is_error) parts.push_back(text_part_of("Error:"));
    const auto content = block.find("content");
    if (content != block.end() && content->is_string()) {
      parts.push_back(text_part_of(std::move(content->get_ref<std::string&>())));
    } else if (content != block.end() && !content->is_null()) {
      if (!content->is_array()) return wrong_type(place + ".content", "a text or a list of blocks of text", *content);
      for (size_t i = 0; i < content->size(); ++i) {
        CHORAL_TRY(std::string text, text_block(fmt::format("{}.content[{}]", place, i), (*content)[i]));
        parts.push_back(text_part_of(std::move(text)));
      }
    }
    messages_.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", std::move(parts)}});
    return {};
  }

  BodyNotes& notes_;
  Json messages_ = Json::array();
};

}  // namespace

Result<Conversation> read_conversation(Json& body, BodyNotes& notes) {
  ConversationReader reader(notes);
  if (const auto system = body.find("system"); system != body.end() && !system->is_null()) {
    notes.param = "system";
    CHORAL_RETURN_IF_ERROR(reader.read_system(*system));
  }
  notes.param = "messages";
  const auto messages = body.find("messages");
  if (messages == body.end() || messages->is_null()) return invalid_argument("'messages' is missing");
  if (!messages->is_array() || messages->empty()) return wrong_type("messages", "a list of at least one message", *messages);
  for (size_t i = 0; i < messages->size(); ++i)
    CHORAL_RETURN_IF_ERROR(reader.read_message(fmt::format("messages[{}]", i), (*messages)[i]));
  notes.param.clear();
  return reader.take();
}

}  // namespace choral::serve
