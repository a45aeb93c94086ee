#include "serve/tools/call_form.h"

#include <fmt/format.h>

namespace choral::serve {

CallForm call_form(ToolFormat format) {
  using namespace marker;
  switch (format) {
    case ToolFormat::kHermes:
      return {fmt::format("{}\n{{\"name\": \"", kHermesBegin),
              "\", \"arguments\": ",
              fmt::format("}}\n{}", kHermesEnd),
              "\n",
              "",
              "",
              kHermesBegin};
    case ToolFormat::kLlama3Json: return {R"({"name": ")", R"(", "parameters": )", "}", "; ", "", "", ""};
    case ToolFormat::kMistral:
      return {R"({"name": ")", R"(", "arguments": )", "}", ", ", fmt::format("{} [", kMistralBegin), "]", kMistralBegin};
    case ToolFormat::kDeepSeekV3:
      return {fmt::format("{}function{}", kDeepSeekCallBegin, kDeepSeekSeparator),
              "\n```json\n",
              fmt::format("\n```{}", kDeepSeekCallEnd),
              "\n",
              std::string(kDeepSeekCallsBegin),
              std::string(kDeepSeekCallsEnd),
              kDeepSeekCallsBegin};
    case ToolFormat::kJson: return {R"({"name": ")", R"(", "parameters": )", "}", ", ", "[", "]", ""};
  }
  return {};
}

std::string written_calls(ToolFormat format, std::span<const std::pair<std::string, std::string>> calls) {
  const CallForm form = call_form(format);
  std::string text = form.open;
  for (const auto& [name, arguments] : calls) {
    if (&name != &calls.front().first) text += form.separator;
    text += fmt::format("{}{}{}{}{}", form.before_name, name, form.after_name, arguments, form.end);
  }
  return text + form.close;
}

}  // namespace choral::serve
