#include "serve/openai/answer_plan.h"

#include <memory>
#include <utility>

#include "serve/tools/tool_call_id.h"

namespace choral::serve {

AnswerReader make_answer_reader(const AnswerPlan& plan, Announce announce) {
  const ToolPlan& tools = plan.tools;
  AnswerReading reading{.thoughts = plan.thoughts, .prompt_end = plan.prompt_end, .reads_calls = tools.reads_calls()};
  if (reading.reads_calls) {
    CallReading& calls = reading.calls;
    calls.format = tools.format;
    calls.announce = announce;
    calls.make_id = [format = tools.format] { return make_tool_call_id(format); };
    calls.types = std::make_shared<const ParameterTypes>(ParameterTypes::of_tools(tools.tools_json));
    calls.only_calls = tools.choice == ToolChoice::kRequired || tools.choice == ToolChoice::kNamed;
    if (tools.only_arguments) calls.only_arguments_of = tools.function;
  }
  return AnswerReader(std::move(reading));
}

AnswerReader make_thought_reader(const AnswerPlan& plan) {
  return AnswerReader({.thoughts = plan.thoughts, .prompt_end = plan.prompt_end});
}

}  // namespace choral::serve
