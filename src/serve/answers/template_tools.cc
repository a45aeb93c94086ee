#include "serve/answers/template_tools.h"

#include <fmt/format.h>

#include <array>
#include <optional>

namespace choral::serve {
namespace {

// Marks that stand together in a family's template and in no other; the first row that fits counts.
struct Signs {
  ToolFormat format;
  std::array<std::string_view, 2> all;
};
constexpr std::array<Signs, 20> kSigns = {{{ToolFormat::kOpenAI, {"<|channel|>", "<|message|>"}},
                                           {ToolFormat::kDeepSeekV3, {"<｜tool▁calls▁begin｜>", "```json"}},
                                           {ToolFormat::kDeepSeekV31, {"<｜tool▁calls▁begin｜>", ""}},
                                           {ToolFormat::kKimiK2, {"<|tool_calls_section_begin|>", ""}},
                                           {ToolFormat::kMistral, {"[TOOL_CALLS]", ""}},
                                           {ToolFormat::kGranite, {"<|start_of_role|>", "<|tool_call|>"}},
                                           {ToolFormat::kPhi4Mini, {"<|tool_call|>", ""}},
                                           {ToolFormat::kPhi4Mini, {"functools[", ""}},
                                           {ToolFormat::kMiniMaxM2, {"<minimax:tool_call>", ""}},
                                           {ToolFormat::kSeedOss, {"<seed:tool_call>", ""}},
                                           {ToolFormat::kGemma4, {"<|tool_call>", "<tool_call|>"}},
                                           {ToolFormat::kOlmo3, {"<function_calls>", "<|im_start|>"}},
                                           {ToolFormat::kQwen3Coder, {"<tool_call>", "<function="}},
                                           {ToolFormat::kGlm45, {"<tool_call>", "<arg_key>"}},
                                           {ToolFormat::kHermes, {"<tool_call>", ""}},
                                           {ToolFormat::kGranite20b, {"<function_call>", ""}},
                                           {ToolFormat::kLlama4Pythonic, {"<|python_start|>", ""}},
                                           {ToolFormat::kLlama3Json, {"<|python_tag|>", ""}},
                                           {ToolFormat::kLlama3Json, {"ipython", "parameters"}},
                                           {ToolFormat::kGemma, {"<start_of_turn>", "tool_code"}}}};

}  // namespace

TemplateTools tools_of_template(std::string_view text) {
  const auto has = [text](std::string_view part) { return text.find(part) != std::string_view::npos; };
  TemplateTools found;
  found.shows_tools = has("tools");
  found.shows_calls = has("tool_calls");
  std::optional<ToolFormat> format;
  for (const auto& signs : kSigns) {
    if (!format && has(signs.all[0]) && has(signs.all[1])) format = signs.format;
  }
  if (!format && !found.shows_tools && has("<|im_start|>")) format = ToolFormat::kHermes;
  if (!format && !found.shows_tools && has("<|start_header_id|>")) format = ToolFormat::kLlama3Json;
  found.knows_format = format.has_value();
  found.format = format.value_or(ToolFormat::kJson);
  if (!found.shows_tools) {
    found.note =
        found.knows_format
            ? fmt::format(
                  "the chat template does not show tools to the model; the prompt says what they are, and that a "
                  "call is written as {}'s are (--tool-call-parser says otherwise)",
                  call_marks(found.format).name)
            : "the chat template does not show tools to the model, whose form of calls is not known: only calls that are "
              "required or named are served, unless --tool-call-parser names a form";
  }
  return found;
}

}  // namespace choral::serve
