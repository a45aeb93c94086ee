#include "serve/answers/call_marks.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "serve/answers/parser_names.h"

namespace choral::serve {
namespace {

constexpr std::string_view kToolCall = "<tool_call>", kToolCallEnd = "</tool_call>";

// In the order of ToolFormat.
constexpr std::array<CallMarks, 20> kCallRows = {{
    {ToolFormat::kHermes, "hermes", HeadForm::kObjects, {kToolCall}, "", "", "", "", kToolCallEnd},
    {ToolFormat::kLlama3Json, "llama3_json", HeadForm::kObject, {"<|python_tag|>"}, "{", ";", "", "", "", true},
    {ToolFormat::kPythonic, "pythonic", HeadForm::kPython, {"<|python_tag|>"}, "[", "", "", "", "", true},
    {ToolFormat::kLlama4Pythonic,
     "llama4_pythonic",
     HeadForm::kPython,
     {"<|python_start|>"},
     "[",
     "",
     "",
     "",
     "<|python_end|>",
     true},
    // Its mark is a special token, which some servers drop.
    {ToolFormat::kMistral, "mistral", HeadForm::kMistral, {"[TOOL_CALLS]"}, "[", "", "", "", "", true},
    {ToolFormat::kDeepSeekV3,
     "deepseek_v3",
     HeadForm::kSection,
     {"<｜tool▁calls▁begin｜>"},
     "",
     "<｜tool▁sep｜>",
     "<｜tool▁call▁begin｜>",
     "<｜tool▁call▁end｜>",
     "<｜tool▁calls▁end｜>",
     true},
    {ToolFormat::kDeepSeekV31,
     "deepseek_v31",
     HeadForm::kSection,
     {"<｜tool▁calls▁begin｜>"},
     "",
     "<｜tool▁sep｜>",
     "<｜tool▁call▁begin｜>",
     "<｜tool▁call▁end｜>",
     "<｜tool▁calls▁end｜>",
     true},
    {ToolFormat::kKimiK2,
     "kimi_k2",
     HeadForm::kSection,
     {"<|tool_calls_section_begin|>", "<|tool_call_section_begin|>", "<|tool_call_begin|>"},
     "",
     "<|tool_call_argument_begin|>",
     "<|tool_call_begin|>",
     "<|tool_call_end|>",
     "<|tool_calls_section_end|>",
     true},
    {ToolFormat::kQwen3Coder,
     "qwen3_coder",
     HeadForm::kFunction,
     {kToolCall, "<function="},
     "",
     "",
     "<function=",
     "",
     kToolCallEnd},
    {ToolFormat::kSeedOss,
     "seed_oss",
     HeadForm::kFunction,
     {"<seed:tool_call>", "<function="},
     "",
     "",
     "<function=",
     "",
     "</seed:tool_call>",
     true},
    {ToolFormat::kMiniMaxM2,
     "minimax_m2",
     HeadForm::kFunction,
     {"<minimax:tool_call>", "<invoke name="},
     "",
     "",
     "<invoke name=",
     "",
     "</minimax:tool_call>",
     true},
    {ToolFormat::kGlm45, "glm45", HeadForm::kNameLine, {kToolCall}, "", "", "", "", kToolCallEnd},
    {ToolFormat::kOpenAI, "openai", HeadForm::kNone, {}, "", "", "", "", "", true},
    {ToolFormat::kGranite, "granite", HeadForm::kObjects, {"<|tool_call|>", kToolCall}, "[", "", "", "", kToolCallEnd, true},
    {ToolFormat::kGranite20b, "granite-20b-fc", HeadForm::kObject, {"<function_call>"}, "", "", "", "", ""},
    {ToolFormat::kPhi4Mini,
     "phi4_mini_json",
     HeadForm::kObjects,
     {"functools", "<|tool_call|>"},
     "",
     "",
     "",
     "",
     "<|/tool_call|>",
     true},
    {ToolFormat::kGemma4, "gemma4", HeadForm::kWord, {"<|tool_call>"}, "", "", "call:", "", "<tool_call|>", true},
    {ToolFormat::kOlmo3, "olmo3", HeadForm::kPythonLines, {"<function_calls>"}, "[", "", "", "", "</function_calls>", true},
    {ToolFormat::kGemma, "gemma", HeadForm::kFencedPython, {"```tool_code"}, "{[`", "", "", "", "```"},
    {ToolFormat::kJson, "json", HeadForm::kFenced, {}, "{[`", "", "", "", "```"},
}};

// vLLM's further names for what is read alike.
constexpr std::array<std::pair<std::string_view, ToolFormat>, 5> kOtherNames = {{{"llama4_json", ToolFormat::kLlama3Json},
                                                                                 {"qwen3_xml", ToolFormat::kQwen3Coder},
                                                                                 {"glm47", ToolFormat::kGlm45},
                                                                                 {"ernie45", ToolFormat::kHermes},
                                                                                 {"gpt_oss", ToolFormat::kOpenAI}}};

constexpr ParameterMarks kFunctionParameters{"<parameter=", ">", "", "</parameter>", "</function>", true};
constexpr ParameterMarks kInvokeParameters{"<parameter name=\"", "\">", "", "</parameter>", "</invoke>", true};
constexpr ParameterMarks kGlmParameters{"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", kToolCallEnd, false};

}  // namespace

const CallMarks& call_marks(ToolFormat format) {
  return *std::find_if(kCallRows.begin(), kCallRows.end(), [format](const CallMarks& row) { return row.format == format; });
}

std::span<const CallMarks> all_call_marks() { return kCallRows; }

const ParameterMarks& parameter_marks(ToolFormat format) {
  if (format == ToolFormat::kMiniMaxM2) return kInvokeParameters;
  return format == ToolFormat::kGlm45 ? kGlmParameters : kFunctionParameters;
}

Result<ToolFormat> tool_format_named(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& row : kCallRows) {
    if (name == row.name) return row.format;
    names.emplace_back(row.name);
  }
  for (const auto& [known, format] : kOtherNames) {
    if (name == known) return format;
    names.emplace_back(known);
  }
  return no_such_parser("tool call", name, names);
}

std::string tool_format_names() {
  std::string list;
  for (const auto& row : kCallRows) list += (list.empty() ? "" : ", ") + std::string(row.name);
  return list;
}

}  // namespace choral::serve
