#include "serve/tools/call_form.h"

#include <fmt/format.h>

namespace choral::serve {

// Families whose arguments are no JSON read calls as JSON too, which constraints can hold an answer to.
CallForm call_form(ToolFormat format) {
  const CallMarks& marks = call_marks(format);
  const std::string_view begin = marks.begins[0];
  switch (format) {
    case ToolFormat::kHermes:
    case ToolFormat::kQwen3Coder:
    case ToolFormat::kSeedOss:
    case ToolFormat::kMiniMaxM2:
    case ToolFormat::kGlm45:
      return {fmt::format("{}\n{{\"name\": \"", begin),
              "\", \"arguments\": ",
              fmt::format("}}\n{}", marks.end),
              "\n",
              "",
              "",
              format == ToolFormat::kHermes ? begin : std::string_view()};
    case ToolFormat::kLlama3Json: return {R"({"name": ")", R"(", "parameters": )", "}", "; ", "", "", ""};
    case ToolFormat::kGranite20b: return {R"(<function_call> {"name": ")", R"(", "arguments": )", "}", "\n", "", "", begin};
    case ToolFormat::kMistral: return {R"({"name": ")", R"(", "arguments": )", "}", ", ", fmt::format("{} [", begin), "]", begin};
    case ToolFormat::kGranite:
    case ToolFormat::kPhi4Mini: return {R"({"name": ")", R"(", "arguments": )", "}", ", ", fmt::format("{}[", begin), "]", begin};
    case ToolFormat::kDeepSeekV3:
      return {fmt::format("{}function{}", marks.call_begin, marks.separator),
              "\n```json\n",
              fmt::format("\n```{}", marks.call_end),
              "\n",
              std::string(begin),
              std::string(marks.end),
              begin};
    case ToolFormat::kDeepSeekV31:
      return {std::string(marks.call_begin),
              std::string(marks.separator),
              std::string(marks.call_end),
              "",
              std::string(begin),
              std::string(marks.end),
              begin};
    case ToolFormat::kKimiK2:
      return {fmt::format("{}functions.", marks.call_begin),
              ":",
              std::string(marks.call_end),
              "",
              std::string(begin),
              std::string(marks.end),
              begin,
              marks.separator};
    case ToolFormat::kOpenAI:
      return {"<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "", "<|call|><|start|>assistant", "", "",
              "<|channel|>commentary to=functions."};
    case ToolFormat::kGemma4: return {fmt::format("{}{}", begin, marks.call_begin), "", std::string(marks.end), "", "", "", ""};
    case ToolFormat::kPythonic:
    case ToolFormat::kLlama4Pythonic:
    case ToolFormat::kOlmo3:
    case ToolFormat::kGemma:
    case ToolFormat::kJson: return {R"({"name": ")", R"(", "parameters": )", "}", ", ", "[", "]", ""};
  }
  return {};
}

CallForm held_form(ToolFormat format) {
  const CallMarks& marks = call_marks(format);
  const std::string_view begin = marks.begins[0];
  switch (format) {
    case ToolFormat::kQwen3Coder:
    case ToolFormat::kSeedOss: {
      const std::string_view function = marks.call_begin, end = parameter_marks(format).end;
      const std::string_view trigger = format == ToolFormat::kQwen3Coder ? "<tool_call>\n<function=" : begin;
      return {fmt::format("{}\n{}", begin, function),
              ">",
              fmt::format("{}\n{}", end, marks.end),
              "\n",
              "",
              "",
              trigger,
              "",
              "qwen_xml"};
    }
    case ToolFormat::kMiniMaxM2:
      return {fmt::format("{}\"", marks.call_begin),
              "\">",
              std::string(parameter_marks(format).end),
              "\n",
              fmt::format("{}\n", begin),
              fmt::format("\n{}", marks.end),
              begin,
              "",
              "minimax_xml"};
    case ToolFormat::kGlm45: return {std::string(begin), "", std::string(marks.end), "\n", "", "", begin, "", "glm_xml"};
    default: return call_form(format);
  }
}

std::string written_calls(ToolFormat format, std::span<const std::pair<std::string, std::string>> calls) {
  const CallForm form = call_form(format);
  std::string text = form.open;
  for (const auto& call : calls) {
    const auto& [name, arguments] = call;
    if (&call != calls.data()) text += form.separator;
    text += form.before_name + name + form.after_name;
    if (!form.after_number.empty()) text += fmt::format("{}{}", &call - calls.data(), form.after_number);
    text += arguments + form.end;
  }
  return text + form.close;
}

}  // namespace choral::serve
