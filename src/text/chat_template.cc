#include "text/chat_template.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "text/jinja/print.h"
#include "text/jinja/template.h"
#include "text/jinja/unicode.h"

namespace choral::text {
namespace {

using Variables = std::vector<std::pair<std::string_view, jinja::Value>>;

Result<jinja::Value> read_input(std::string_view name, std::string_view json, const jinja::RenderLimits& limits) {
  if (json.empty()) return jinja::Value::none();
  return jinja::read_json(json, limits).while_(name);
}

// Hugging Face's mark at the end of the text that is to go on; some templates know it.
constexpr std::string_view kMark = "CONTINUE_FINAL_MESSAGE_TAG ";

Result<jinja::Value> marked(const jinja::Value& messages, const jinja::RenderLimits& limits) {
  jinja::Values items = messages.items();
  const jinja::Value* const content = items.empty() ? nullptr : items.back().dict().find("content");
  if (content == nullptr || !content->is_string())
    return invalid_argument("continue_final_message: the last message has no text that an answer could go on with");
  jinja::Dict last = items.back().dict();
  last.set(jinja::Value::text("content"), jinja::Value::text(content->str() + std::string(kMark)));
  CHORAL_TRY(items.back(), jinja::make_dict(std::move(last), limits));
  return jinja::make_list(std::move(items), limits);
}

// A template that cut the space behind the mark cuts the text's own too.
Result<std::string> before_mark(std::string prompt) {
  const size_t at = prompt.rfind(kMark.substr(0, kMark.size() - 1));
  if (at == prompt.npos) return invalid_argument("continue_final_message: the template does not show the last message's text");
  const bool keeps_space = prompt.compare(at, kMark.size(), kMark) == 0;
  prompt.resize(at);
  return keeps_space ? std::move(prompt) : std::string(jinja::strip(prompt, false, true));
}

}  // namespace

std::string chat_messages_json(std::span<const ChatMessage> messages) {
  std::string out = "[";
  for (const ChatMessage& message : messages) {
    if (out.size() > 1) out += ", ";
    out += "{\"role\": ";
    jinja::append_json_text(message.role, false, &out);
    out += ", \"content\": ";
    jinja::append_json_text(message.content, false, &out);
    out += "}";
  }
  return out + "]";
}

ChatTemplate::ChatTemplate(std::string source, std::shared_ptr<const jinja::Template> compiled)
    : source_(std::move(source)), compiled_(std::move(compiled)) {}

Result<ChatTemplate> ChatTemplate::parse(std::string source, const jinja::RenderLimits& limits) {
  CHORAL_TRY(auto compiled, jinja::Template::parse(source, limits).while_("chat template"));
  return ChatTemplate(std::move(source), std::make_shared<const jinja::Template>(std::move(compiled)));
}

bool ChatTemplate::mentions(std::string_view variable) const { return compiled_->mentions(variable); }

Result<std::string> ChatTemplate::apply(const ChatInput& input, ChatTemplateError* error) const {
  const jinja::RenderLimits& limits = compiled_->limits();
  CHORAL_TRY(jinja::Value messages, read_input("chat messages", input.messages_json, limits));
  if (!messages.is_list()) return invalid_argument("chat messages must be a JSON array, got {}", jinja::type_name(messages));
  for (const jinja::Value& message : messages.items()) {
    if (!message.is_dict())
      return invalid_argument("every chat message must be a JSON object, got {}", jinja::type_name(message));
  }
  if (input.continue_final_message) {
    CHORAL_TRY(messages, marked(messages, limits));
  }
  CHORAL_TRY(jinja::Value tools, read_input("chat tools", input.tools_json, limits));
  if (!tools.is_none() && !tools.is_list())
    return invalid_argument("chat tools must be a JSON array, got {}", jinja::type_name(tools));
  CHORAL_TRY(const jinja::Value kwargs, read_input("chat template kwargs", input.kwargs_json, limits));
  if (!kwargs.is_none() && !kwargs.is_dict())
    return invalid_argument("chat template kwargs must be a JSON object, got {}", jinja::type_name(kwargs));

  Variables variables;
  for (const auto& [name, token] : input.special_tokens) {
    if (!jinja::valid_utf8(token)) return invalid_argument("the special token {} is not valid UTF-8", name);
    variables.emplace_back(name, jinja::Value::text(token));
  }
  variables.emplace_back("documents", jinja::Value::none());
  if (kwargs.is_dict()) {
    for (const auto& [name, value] : kwargs.dict().entries()) {
      for (const std::string_view taken : {"messages", "tools", "add_generation_prompt"}) {
        if (name.str() == taken) return invalid_argument("chat template kwargs must not set '{}': it has its own field", taken);
      }
      variables.emplace_back(name.str(), value);
    }
  }
  variables.emplace_back("messages", std::move(messages));
  variables.emplace_back("tools", std::move(tools));
  variables.emplace_back("add_generation_prompt", jinja::Value::boolean(input.add_generation_prompt));

  jinja::RenderFailure failure;
  Result<std::string> prompt = compiled_->render(std::move(variables), input.now_unix_s, &failure);
  if (!prompt.ok() && error != nullptr) *error = {std::move(failure.text), failure.line, failure.raised};
  if (prompt.ok() && input.continue_final_message) prompt = before_mark(*std::move(prompt));
  return std::move(prompt).while_("chat template");
}

Result<std::string_view> choose_chat_template(std::span<const std::string_view> names, bool has_tools) {
  for (const std::string_view wanted : {"tool_use", "default"}) {
    if (wanted == "tool_use" && !has_tools) continue;
    const auto found = std::find(names.begin(), names.end(), wanted);
    if (found != names.end()) return *found;
  }
  return not_found("the model has no chat template 'default'; it has: {}",
                   names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

bool brings_tools(std::string_view tools_json) {
  constexpr std::string_view kSpace = " \t\n\r";
  const size_t begin = tools_json.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return false;
  return tools_json.substr(begin, tools_json.find_last_not_of(kSpace) + 1 - begin) != "null";
}

}  // namespace choral::text
