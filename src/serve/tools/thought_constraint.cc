#include "serve/tools/thought_constraint.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <string>

#include "base/json_quoted.h"

namespace choral::serve {
namespace {

constexpr int kMaxBlank = 64;  // white space in a row inside a form; without an end a weak model would go on with it

std::string constant(std::string_view text) { return fmt::format(R"({{"type":"const_string","value":{}}})", json_quoted(text)); }

// The form as a part of a structural tag; empty: there is none.
std::string as_format(const StructuredOutput& wanted) {
  using Kind = StructuredOutput::Kind;
  const auto schema = [](std::string_view text) {
    return fmt::format(R"({{"type":"json_schema","json_schema":{},"max_whitespace_cnt":{}}})", text, kMaxBlank);
  };
  switch (wanted.kind) {
    case Kind::kNone: return "";
    case Kind::kJsonObject: return schema(R"({"type":"object"})");
    case Kind::kJsonSchema: return schema(wanted.text);
    case Kind::kRegex: return fmt::format(R"({{"type":"regex","pattern":{}}})", json_quoted(wanted.text));
    case Kind::kGrammar: return fmt::format(R"({{"type":"grammar","grammar":{}}})", json_quoted(wanted.text));
    case Kind::kChoice: {
      std::string list;
      for (const auto& choice : wanted.choices) list += (list.empty() ? "" : ",") + constant(choice);
      return fmt::format(R"({{"type":"or","elements":[{}]}})", list);
    }
    case Kind::kStructuralTag: {
      simdjson::dom::parser parser;
      simdjson::dom::element format;
      if (parser.parse(wanted.text).at_key("format").get(format)) return "";
      return simdjson::minify(format);
    }
  }
  return "";
}

}  // namespace

std::optional<StructuredOutput> behind_thoughts(const StructuredOutput& wanted, const ThoughtMarks& marks, bool open) {
  const std::string format = as_format(wanted);
  if (format.empty()) return std::nullopt;
  const auto thought = [&marks](std::string_view begin) {
    return fmt::format(R"({{"type":"tag","begin":{},"content":{{"type":"any_text"}},"end":{}}})", json_quoted(begin),
                       json_quoted(marks.ends[0]));
  };
  // gpt-oss speaks on channels; calls bring theirs.
  const std::string_view next = "<|start|>assistant", final_channel = "<|channel|>final<|message|>";
  const bool is_call = format.find("<|channel|>") != std::string::npos;
  std::string between = R"({"type":"regex","pattern":"[ \\n]{0,4}"})";
  std::string alone = format;
  if (marks.is_harmony) {
    between = constant(std::string(next) + std::string(is_call ? "" : final_channel));
    if (!is_call) alone = fmt::format(R"({{"type":"sequence","elements":[{},{}]}})", constant(final_channel), format);
  }
  std::string all =
      fmt::format(R"({{"type":"sequence","elements":[{},{},{}]}})", thought(open ? "" : marks.begins[0]), between, format);
  if (!open) all = fmt::format(R"({{"type":"or","elements":[{},{}]}})", all, alone);
  StructuredOutput out;
  out.kind = StructuredOutput::Kind::kStructuralTag;
  out.text = fmt::format(R"({{"type":"structural_tag","format":{}}})", all);
  return out;
}

}  // namespace choral::serve
