// The reader of a family's answers: what is thought, what is said, and which functions are called (answer_events.h), from the
// text as it is generated or all at once. Whatever the pieces are, the sum of the events is the same. Not thread-safe: one for
// each answer.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "serve/answers/answer_events.h"
#include "serve/answers/call_reader.h"
#include "serve/answers/harmony_reader.h"
#include "serve/answers/thought_reader.h"

namespace choral::serve {

struct AnswerReading {
  const ThoughtMarks* thoughts = nullptr;  // null: what is thought is content
  std::string prompt_end = {};             // the last few words of the prompt, marks included
  bool reads_calls = false;
  CallReading calls = {};
};

class AnswerReader {
 public:
  explicit AnswerReader(AnswerReading reading);

  // Appends to `out`.
  void push(std::string_view text, AnswerEvents& out);
  void finish(AnswerEnd end, AnswerEvents& out);  // once, last

  size_t calls() const;
  // Where the text so far ends, and how many thoughts came to their end.
  ThoughtReader::Place place() const;
  size_t ended_thoughts() const;

 private:
  void take(std::string_view text, bool is_all, AnswerEvents& out);

  std::optional<HarmonyReader> harmony_;  // else the others
  std::optional<ThoughtReader> thoughts_;
  std::optional<CallReader> calls_;
};

ReadAnswer read_answer(AnswerReader reader, std::string_view text, AnswerEnd end);

}  // namespace choral::serve
