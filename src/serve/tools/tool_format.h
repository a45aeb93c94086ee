// How families of models write tool calls into their text. The family is known from the chat template's markers, from its turns
// where it knows no tools (families learn one form, and not all of their templates show it), or named as vLLM's
// --tool-call-parser names it. Thread-safety: constants and pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral::serve {

enum class ToolFormat {
  kHermes,      // <tool_call>{"name": …, "arguments": {…}}</tool_call>; an array of them too: Hermes, Qwen 2 to 3, SmolLM2
  kLlama3Json,  // {"name": …, "parameters": {…}}, perhaps behind <|python_tag|>, several divided by ";"
  kMistral,     // [TOOL_CALLS] [{"name": …, "arguments": {…}}], or [TOOL_CALLS]name[ARGS]{…}
  kDeepSeekV3,  // <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>name, a fence, {…} …; V3.1's form without
                // fence too
  kJson,  // the answer is one call as JSON, or an array of them, perhaps in a ```json fence: models without markers
};

namespace marker {
inline constexpr std::string_view kHermesBegin = "<tool_call>", kHermesEnd = "</tool_call>";
inline constexpr std::string_view kPythonTag = "<|python_tag|>";
inline constexpr std::string_view kMistralBegin = "[TOOL_CALLS]", kMistralArguments = "[ARGS]", kMistralId = "[CALL_ID]";
inline constexpr std::string_view kDeepSeekCallsBegin = "<｜tool▁calls▁begin｜>", kDeepSeekCallsEnd = "<｜tool▁calls▁end｜>";
inline constexpr std::string_view kDeepSeekCallBegin = "<｜tool▁call▁begin｜>", kDeepSeekCallEnd = "<｜tool▁call▁end｜>";
inline constexpr std::string_view kDeepSeekSeparator = "<｜tool▁sep｜>";
}  // namespace marker

// "hermes", "llama3_json", "mistral", "deepseek_v3", "json"; other names are invalid_argument, with the list.
Result<ToolFormat> tool_format_named(std::string_view name);

struct TemplateTools {
  ToolFormat format = ToolFormat::kJson;
  bool knows_format = false;  // the family is known, by its markers or by its turns; else the format is a guess
  bool shows_tools = false;   // to the model; else the prompt must (openai/shown_tools.h)
  bool shows_calls = false;   // that were made before, and what came of them
  std::string note = {};      // what was chosen for the model and may surprise; empty: nothing
};
TemplateTools tools_of_template(std::string_view chat_template);

// Its markers are special tokens in the vocabularies that have them: the answer's text must keep special tokens to be read.
bool has_special_markers(ToolFormat format);

}  // namespace choral::serve
