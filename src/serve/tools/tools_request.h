// What a chat request says of tools (tools, tool_choice, parallel_tool_calls), checked, and what follows from it for the answer:
// the tools the template may show, the constraint on sampling, and how calls are read from the text. Thread-safety: pure
// functions on the caller's data.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "choral/types.h"
#include "serve/answers/answer_events.h"
#include "serve/answers/call_marks.h"

namespace choral::serve {

struct ToolLimits {
  size_t max_tools = 128;
  size_t max_description_bytes = 64 * 1024;
  size_t max_bytes = 512 * 1024;  // of the array
  int max_depth = 64;
};

struct Tool {
  std::string name;
  // The JSON schema that arguments are held to. {"type":"object"} where there is none, or where one that is not strict asks for
  // what cannot be kept while an answer is written.
  std::string schema;
  bool strict = false;
};

struct ToolsRequest {
  std::string_view tools;        // JSON text of the request's fields; empty or "null": absent
  std::string_view tool_choice;  // "\"auto\"", "{\"type\":\"function\",…}"
  std::string_view parallel_tool_calls;
};

enum class ToolChoice { kNone, kAuto, kRequired, kNamed };

struct ToolPlan {
  std::vector<Tool> tools;          // those that may be called
  std::string tools_json;           // for the chat template; empty: none
  bool needs_showing = false;       // the template does not show them
  bool calls_need_showing = false;  // nor calls that were made
  ToolChoice choice = ToolChoice::kNone;
  std::string function;         // kNamed
  bool only_arguments = false;  // kNamed: the answer is the function's arguments and nothing else; else it is a call
  bool parallel = true;
  StructuredOutput constraint;  // kNone: the text is free
  ToolFormat format = ToolFormat::kJson;
  bool keep_special_tokens = false;  // in the answer's text, for its reader
  bool reads_calls() const { return choice != ToolChoice::kNone; }
};

// What the server can do: the model's format, whether constraints beyond JSON objects can be compiled, and what the chat template
// shows of tools.
struct ToolSetting {
  ToolFormat format = ToolFormat::kJson;
  bool has_grammars = false;
  ToolLimits limits = {};
  bool knows_format = true;  // TemplateTools'
  bool shows_tools = true;
  bool shows_calls = true;
};

// An error names the field in `param` ("tools[0].function.name") and in its words.
Result<ToolPlan> plan_tools(const ToolsRequest& request, const ToolSetting& setting, std::string& param);

// How an answer that ended so ends for its reader.
inline AnswerEnd end_of(FinishReason reason) { return reason == FinishReason::kLength ? AnswerEnd::kCut : AnswerEnd::kOver; }

}  // namespace choral::serve
