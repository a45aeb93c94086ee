// How families of models mark what they think before they answer: a table, a row a form, by the names that vLLM's
// --reasoning-parser has for them. Thread-safety: constants and pure functions.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::serve {

struct ThoughtMarks {
  std::string_view name;                   // vLLM's
  std::array<std::string_view, 3> begins;  // each opens thoughts
  std::array<std::string_view, 3> ends;    // each closes them; behind a prompt that opened them there may be nothing else
  std::string_view also_ends = {};         // begins a call, which ends thoughts that were not closed
  bool is_harmony = false;                 // gpt-oss: harmony_reader.h reads all of it
  bool is_special = false;                 // the marks are special tokens: the text must keep such tokens
};

// Null: "none", nothing is read as thoughts. An unknown name is invalid_argument, with the list.
Result<const ThoughtMarks*> thought_marks_named(std::string_view name);
// "deepseek_r1, …".
std::string thought_marks_names();
std::span<const ThoughtMarks> all_thought_marks();
// As the chat template writes and reads thoughts. Null: it knows none.
const ThoughtMarks* thoughts_of_template(std::string_view chat_template);

// The prompt, of which this is the end, leaves thoughts open: what comes first is one.
bool opens_thoughts(const ThoughtMarks& marks, std::string_view prompt_end);
// It ends with thoughts that are over: there are to be none.
bool closes_thoughts(const ThoughtMarks& marks, std::string_view prompt_end);
// Its last thoughts have no end, however much of them it has.
bool leaves_thoughts_open(const ThoughtMarks& marks, std::string_view prompt);

}  // namespace choral::serve
