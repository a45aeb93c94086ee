#include "serve/tools/tool_constraint.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "serve/tools/call_form.h"

namespace choral::serve {
namespace {

constexpr int kMaxWhiteSpace = 64;  // in a row; without an end a weak model would go on with it

// Markers and names hold nothing but quotes and line breaks that JSON would have escaped.
std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string tag(std::string_view begin, std::string_view content, std::string_view end) {
  return fmt::format(R"({{"type":"tag","begin":{},"content":{},"end":{}}})", json_string(begin), content, json_string(end));
}

// Behind the name.
std::string arguments(const CallForm& form, const Tool& tool) {
  std::string out =
      fmt::format(R"({{"type":"json_schema","json_schema":{},"max_whitespace_cnt":{}}})", tool.schema, kMaxWhiteSpace);
  if (!form.style.empty()) out.insert(out.size() - 1, fmt::format(R"(,"style":"{}")", form.style));
  if (form.after_number.empty()) return out;
  return fmt::format(
      R"({{"type":"sequence","elements":[{{"type":"regex","pattern":"[0-9]{{1,3}}"}},{{"type":"const_string","value":{}}},{}]}})",
      json_string(form.after_number), out);
}

}  // namespace

StructuredOutput tool_constraint(ToolFormat format, std::span<const Tool> tools, bool required, bool parallel) {
  const CallForm form = held_form(format);
  if (!required && form.trigger.empty()) return {};
  std::string calls;
  for (const Tool& tool : tools) {
    if (!calls.empty()) calls += ',';
    calls += tag(form.before_name + tool.name + form.after_name, arguments(form, tool), form.end);
  }
  std::string list =
      fmt::format(R"({{"type":"tags_with_separator","tags":[{}],"separator":{},"at_least_one":true,"stop_after_first":{}}})",
                  calls, json_string(form.separator), !parallel);
  if (!form.open.empty()) list = calls = tag(form.open, list, form.close);
  if (!required) {
    list = fmt::format(R"({{"type":"triggered_tags","triggers":[{}],"tags":[{}],"stop_after_first":{}}})",
                       json_string(form.trigger), calls, !parallel);
  }
  StructuredOutput out;
  out.kind = StructuredOutput::Kind::kStructuralTag;
  out.text = fmt::format(R"({{"type":"structural_tag","format":{}}})", list);
  return out;
}

}  // namespace choral::serve
