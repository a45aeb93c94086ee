// A model's chat template: messages (JSON) in, prompt text out, byte for byte what Hugging Face's apply_chat_template
// gives: Jinja with trim_blocks, lstrip_blocks and loop controls in the immutable sandbox, plus tojson (plain JSON),
// raise_exception, strftime_now and {% generation %}. The interpreter is our own (text/jinja): templates come from model
// directories and messages from clients, so it has no way to reach anything but its input and it counts what it does.
// Thread-safety: parse() once; apply() is const and may run on many threads at the same time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "choral/types.h"
#include "text/jinja/limits.h"

namespace choral::text {

namespace jinja {
class Template;
}

// [{"role": …, "content": …}, …] with JSON escapes; invalid UTF-8 is refused by apply(), not here.
std::string chat_messages_json(std::span<const ChatMessage> messages);

// Every *_json must be UTF-8 JSON. An empty tools_json or "null" is None, as when no tools are given.
struct ChatInput {
  std::string_view messages_json;                                  // an array of objects
  std::string_view tools_json;                                     // an array of tool descriptions, or empty
  std::string_view kwargs_json;                                    // an object of further variables, or empty
  std::map<std::string, std::string, std::less<>> special_tokens;  // bos_token, eos_token, …; kwargs win over them
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the prompt ends within the last message, as far as its text goes
  std::optional<int64_t> now_unix_s;    // for strftime_now, shown in UTC; without it the machine's local time
};

// What went wrong in the template, beside the Status: for callers that show the template's own words.
struct ChatTemplateError {
  std::string text;     // exactly what raise_exception was given, or the message alone, without line and context
  int line = 0;         // of the template, from 1
  bool raised = false;  // by raise_exception: the conversation breaks the template's rules
};

class ChatTemplate {
 public:
  // corrupt with line number when the source is not a template, unsupported for include/import/extends.
  static Result<ChatTemplate> parse(std::string source, const jinja::RenderLimits& limits = {});

  // invalid_argument: the JSON is bad or the template raised or failed; too_large: a limit. The message has the line.
  Result<std::string> apply(const ChatInput& input, ChatTemplateError* error = nullptr) const;

  const std::string& source() const { return source_; }
  // Does the template read this variable anywhere ("tools", "enable_thinking")? A hint: it may be a loop's own name.
  bool mentions(std::string_view variable) const;

 private:
  ChatTemplate(std::string source, std::shared_ptr<const jinja::Template> compiled);
  std::string source_;
  std::shared_ptr<const jinja::Template> compiled_;
};

// Which of a model's named templates a request gets, as Hugging Face chooses: "tool_use" when it brings tools and there is
// one, else "default". not_found (with the names there are) otherwise. What it gives is one of `names`.
Result<std::string_view> choose_chat_template(std::span<const std::string_view> names, bool has_tools);
// Does this tools_json (see ChatInput) bring tools? An empty array does, as in Hugging Face.
bool brings_tools(std::string_view tools_json);

}  // namespace choral::text
