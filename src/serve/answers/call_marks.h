// How families of models write tool calls into their text: a table of the marks around a call, a row a form, by the names that
// vLLM's --tool-call-parser has for them. Thread-safety: constants and pure functions.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::serve {

enum class ToolFormat {
  kHermes,      // <tool_call>{"name": …, "arguments": {…}}</tool_call>; an array of them too: Hermes, Qwen 2 to 3, SmolLM2
  kLlama3Json,  // {"name": …, "parameters": {…}}, perhaps behind <|python_tag|>, several divided by ";"
  kPythonic,    // [f(a=1, b="x"), g()]: Llama 3.2
  kLlama4Pythonic,  // the same, perhaps between <|python_start|> and <|python_end|>
  kMistral,         // [TOOL_CALLS] [{"name": …, "arguments": {…}}], or [TOOL_CALLS]name[CALL_ID]id[ARGS]{…}
  kDeepSeekV3,      // <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>name, a fence, {…} …
  kDeepSeekV31,     // … <｜tool▁call▁begin｜>name<｜tool▁sep｜>{…}<｜tool▁call▁end｜> …
  kKimiK2,          // … <|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{…}<|tool_call_end|> …
  kQwen3Coder,      // <tool_call><function=name><parameter=key>value</parameter></function></tool_call>
  kSeedOss,         // the same between <seed:tool_call> and </seed:tool_call>
  kMiniMaxM2,       // <minimax:tool_call>, <invoke name="name"><parameter name="key">value</parameter></invoke> …,
                    // </minimax:tool_call>
  kGlm45,           // <tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>
  kOpenAI,          // gpt-oss: <|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>
  kGranite,         // <|tool_call|>[{"name": …, "arguments": {…}}]
  kGranite20b,      // <function_call> {"name": …, "arguments": {…}}
  kPhi4Mini,        // functools[{"name": …, "arguments": {…}}], or between <|tool_call|> and <|/tool_call|>
  kGemma4,          // <|tool_call>call:name{key:<|"|>text<|"|>,other:1}<tool_call|>
  kOlmo3,           // <function_calls>, f(a=1, b="x") on a line of its own for each, </function_calls>
  kGemma,           // a ```tool_code fence, or nothing, around [f(a=1)], f(a=1), or JSON
  kJson,            // the answer is one call as JSON, or an array of them, perhaps in a ```json fence: models without marks
};

// What stands between the mark that announces calls and a call's arguments.
enum class HeadForm {
  kObject,        // {
  kObjects,       // { or [{
  kMistral,       // the same, or name[CALL_ID]id[ARGS]{
  kSection,       // call_begin id separator {
  kFunction,      // call_begin name>, perhaps in quotes, and marked parameters; or kObjects
  kNameLine,      // name, a line's end, and marked parameters; or kObjects
  kPython,        // [f(; or kObjects
  kPythonLines,   // f( or [f(; further calls stand behind each other; or kObjects
  kWord,          // call_begin name{, Gemma 4's arguments; or kObjects
  kFenced,        // perhaps a fence, then kObjects
  kFencedPython,  // perhaps a fence, then f( or [f( or kObjects
  kNone,          // not read by these marks: harmony_reader.h
};

struct CallMarks {
  ToolFormat format;
  std::string_view name;  // vLLM's
  HeadForm head;
  std::array<std::string_view, 3> begins;           // each announces calls; the longer one first where one begins the other
  std::string_view bare;                            // characters with which an answer may begin that is a call without a mark
  std::string_view separator;                       // between calls, or between a call's name and its arguments (kSection)
  std::string_view call_begin = {}, call_end = {};  // around each call; a call may begin with it without a mark before
  std::string_view end = {};                        // behind the last call
  bool is_special = false;  // the marks are special tokens in the vocabularies that have them: the text must keep such tokens
};
const CallMarks& call_marks(ToolFormat format);
std::span<const CallMarks> all_call_marks();

// How arguments are written one by one: key_begin KEY key_end value_begin VALUE value_end …, to `end`.
struct ParameterMarks {
  std::string_view key_begin, key_end, value_begin, value_end, end;
  bool has_lines;  // a value stands on lines of its own
};
const ParameterMarks& parameter_marks(ToolFormat format);  // of kFunction and kNameLine

// By the name in the table, or another that vLLM has for a form ("glm47"); other names are invalid_argument, with the list.
Result<ToolFormat> tool_format_named(std::string_view name);
// "hermes, llama3_json, …".
std::string tool_format_names();

inline constexpr std::string_view kMistralArguments = "[ARGS]", kMistralId = "[CALL_ID]";

}  // namespace choral::serve
