// How the answer to one request is read: what its tools mean for the text, and where the model's thoughts stand. Pure; any
// thread.
#pragma once

#include <string>
#include <string_view>

#include "serve/answers/answer_reader.h"
#include "serve/tools/tools_request.h"

namespace choral::serve {

struct AnswerPlan {
  ToolPlan tools = {};
  const ThoughtMarks* thoughts = nullptr;  // null: none are read
  std::string prompt_end = {};             // AnswerReading's, where thoughts are read
};

AnswerReader make_answer_reader(const AnswerPlan& plan, Announce announce);
// Reads thoughts alone, to count them.
AnswerReader make_thought_reader(const AnswerPlan& plan);

}  // namespace choral::serve
