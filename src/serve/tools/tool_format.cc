#include "serve/tools/tool_format.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/nearest_name.h"
#include "base/printable.h"

namespace choral::serve {
namespace {

constexpr std::array<std::pair<ToolFormat, std::string_view>, 5> kFormats = {{{ToolFormat::kHermes, "hermes"},
                                                                              {ToolFormat::kLlama3Json, "llama3_json"},
                                                                              {ToolFormat::kMistral, "mistral"},
                                                                              {ToolFormat::kDeepSeekV3, "deepseek_v3"},
                                                                              {ToolFormat::kJson, "json"}}};

std::string_view name_of(ToolFormat format) {
  for (const auto& [known, name] : kFormats) {
    if (known == format) return name;
  }
  return "";
}

}  // namespace

Result<ToolFormat> tool_format_named(std::string_view name) {
  std::string list;
  std::vector<std::string> names;
  for (const auto& [format, known] : kFormats) {
    if (name == known) return format;
    names.emplace_back(known);
    list += fmt::format("{}{}", list.empty() ? "" : ", ", known);
  }
  const std::string nearest = nearest_name(name, names);
  return invalid_argument("there is no tool call parser {}{}; there are {}", quoted(name, 60),
                          nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest), list);
}

TemplateTools tools_of_template(std::string_view text) {
  const auto has = [text](std::string_view part) { return text.find(part) != std::string_view::npos; };
  TemplateTools found;
  found.shows_tools = has("tools");
  found.shows_calls = has("tool_calls");
  found.knows_format = true;
  if (has(marker::kDeepSeekCallsBegin)) {
    found.format = ToolFormat::kDeepSeekV3;
  } else if (has(marker::kMistralBegin)) {
    found.format = ToolFormat::kMistral;
  } else if (has(marker::kHermesBegin) && has("<function=")) {
    found.note = "the chat template writes tool calls as <function=…> tags, which are not read; only calls as JSON are";
  } else if (has(marker::kHermesBegin)) {
    found.format = ToolFormat::kHermes;
  } else if (has(marker::kPythonTag) || (has("ipython") && has("parameters"))) {
    found.format = ToolFormat::kLlama3Json;
  } else if (!found.shows_tools && has("<|im_start|>")) {
    found.format = ToolFormat::kHermes;
  } else if (!found.shows_tools && has("<|start_header_id|>")) {
    found.format = ToolFormat::kLlama3Json;
  } else {
    found.knows_format = false;
  }
  if (!found.shows_tools) {
    found.note =
        found.knows_format
            ? fmt::format(
                  "the chat template does not show tools to the model; the prompt says what they are, and that a "
                  "call is written as {}'s are (--tool-call-parser says otherwise)",
                  name_of(found.format))
            : "the chat template does not show tools to the model, whose form of calls is not known: only calls that are "
              "required or named are served, unless --tool-call-parser names a form";
  }
  return found;
}

bool has_special_markers(ToolFormat format) {
  return format == ToolFormat::kLlama3Json || format == ToolFormat::kMistral || format == ToolFormat::kDeepSeekV3;
}

}  // namespace choral::serve
