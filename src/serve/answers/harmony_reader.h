// Reads gpt-oss's answers: messages on channels, each behind a header that says which, and to whom.
//   <|channel|>analysis<|message|>THOUGHTS<|end|><|start|>assistant<|channel|>commentary to=functions.f
//   <|constrain|>json<|message|> {ARGUMENTS}<|call|>      or      <|start|>assistant<|channel|>final<|message|>CONTENT<|return|>
// What is said to others than functions is thoughts. Text without a header is content. As answer_reader.h else.
// Not thread-safe: one for each answer.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "serve/answers/answer_events.h"
#include "serve/answers/call_reader.h"
#include "serve/answers/json_call.h"
#include "serve/answers/thought_reader.h"

namespace choral::serve {

class HarmonyReader {
 public:
  // `reads_thoughts`: else they are content; `reads_calls`: else what stands in them is.
  HarmonyReader(bool reads_thoughts, bool reads_calls, CallReading calls, std::string_view prompt_end);

  void push(std::string_view text, AnswerEvents& out);
  void finish(AnswerEnd end, AnswerEvents& out);

  size_t calls() const { return calls_; }
  ThoughtReader::Place place() const;
  size_t ended_thoughts() const { return ended_; }

 private:
  enum class Part { kBegin, kBetween, kHeader, kThoughts, kContent, kCall };

  bool step(AnswerEvents& out);  // false: more text is needed
  bool between_step();
  bool header_step(AnswerEvents& out);
  void read_header(std::string_view header);
  bool text_step(AnswerEvents& out);
  bool call_step(AnswerEvents& out);
  void tell(AnswerEvents& out);
  void tell_arguments(AnswerEvents& out);
  void end_call(bool cut, AnswerEvents& out);
  void drop(size_t bytes);

  const bool reads_thoughts_, reads_calls_;
  CallReading reading_;
  Part part_ = Part::kBegin;
  std::string held_;
  size_t at_ = 0;  // read of a call
  bool finishing_ = false;
  bool told_ = false;
  std::optional<JsonCall> call_;
  size_t calls_ = 0, ended_ = 0;
};

}  // namespace choral::serve
