#include "serve/answers/thought_marks.h"

#include <algorithm>
#include <vector>

#include "serve/answers/parser_names.h"

namespace choral::serve {
namespace {

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>";

constexpr std::array<ThoughtMarks, 14> kThoughtRows = {{
    {"deepseek_r1", {kThink}, {kThinkEnd}},
    {"qwen3", {kThink}, {kThinkEnd}},
    {"glm45", {kThink}, {kThinkEnd}},
    {"deepseek_v3", {kThink}, {kThinkEnd}},
    {"kimi_k2", {kThink}, {kThinkEnd}, "<|tool_calls_section_begin|>"},
    {"granite",
     {kThink, "Here is my thought process:", "Here's my thought process:"},
     {kThinkEnd, "Here is my response:", "Here's my response:"}},
    {"mistral", {"[THINK]"}, {"[/THINK]"}, "", false, true},
    {"openai_gptoss", {"<|channel|>analysis<|message|>"}, {"<|end|>"}, "", true, true},
    {"seed_oss", {"<seed:think>"}, {"</seed:think>"}, "", false, true},
    {"gemma4", {"<|channel>thought"}, {"<channel|>"}, "", false, true},
    {"step3", {kThink}, {kThinkEnd}},
    {"minimax_m2", {kThink}, {kThinkEnd}},
    {"ernie45", {kThink}, {kThinkEnd}},
    {"olmo3", {kThink}, {kThinkEnd}},
}};

const ThoughtMarks* thought_row(std::string_view name) {
  for (const auto& each : kThoughtRows) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

bool ends_with_one(std::string_view text, std::span<const std::string_view> marks) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.remove_suffix(1);
  return std::any_of(marks.begin(), marks.end(), [text](std::string_view mark) { return !mark.empty() && text.ends_with(mark); });
}

}  // namespace

Result<const ThoughtMarks*> thought_marks_named(std::string_view name) {
  if (name == "none") return nullptr;
  if (const ThoughtMarks* found = thought_row(name)) return found;
  std::vector<std::string> names;
  for (const auto& each : kThoughtRows) names.emplace_back(each.name);
  names.emplace_back("none");
  return no_such_parser("reasoning", name, names);
}

std::string thought_marks_names() {
  std::string list;
  for (const auto& each : kThoughtRows) list += (list.empty() ? "" : ", ") + std::string(each.name);
  return list;
}

std::span<const ThoughtMarks> all_thought_marks() { return kThoughtRows; }

const ThoughtMarks* thoughts_of_template(std::string_view text) {
  const auto has = [text](std::string_view part) { return text.find(part) != std::string_view::npos; };
  if (has("<|channel|>")) return thought_row("openai_gptoss");
  if (has("<channel|>")) return thought_row("gemma4");
  if (has("[THINK]")) return thought_row("mistral");
  if (has("<seed:think>")) return thought_row("seed_oss");
  if (has("my thought process:")) return thought_row("granite");
  if (!has(kThink) && !has(kThinkEnd)) return nullptr;
  if (has("<|tool_calls_section_begin|>")) return thought_row("kimi_k2");
  if (has("<arg_key>")) return thought_row("glm45");
  if (has("<|start_of_role|>")) return thought_row("granite");
  if (has("<|im_start|>")) return thought_row("qwen3");
  return thought_row("deepseek_r1");
}

bool opens_thoughts(const ThoughtMarks& marks, std::string_view prompt_end) { return ends_with_one(prompt_end, marks.begins); }
bool closes_thoughts(const ThoughtMarks& marks, std::string_view prompt_end) { return ends_with_one(prompt_end, marks.ends); }

bool leaves_thoughts_open(const ThoughtMarks& marks, std::string_view prompt) {
  const auto last = [prompt](std::span<const std::string_view> all) {
    size_t behind = 0;
    for (const auto mark : all) {
      if (const size_t at = mark.empty() ? prompt.npos : prompt.rfind(mark); at != prompt.npos) behind = std::max(behind, at + 1);
    }
    return behind;
  };
  return last(marks.begins) > last(marks.ends);
}

}  // namespace choral::serve
