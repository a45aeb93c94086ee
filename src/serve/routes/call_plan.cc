#include "serve/routes/call_plan.h"

#include <algorithm>
#include <utility>

#include "serve/openai/harmony_turns.h"
#include "serve/openai/shown_tools.h"
#include "serve/tools/thought_constraint.h"
#include "serve/tools/thought_limit.h"

namespace choral::serve {
namespace {

Result<ToolPlan> plan_call_tools(const Service& service, LLM& llm, ChatCall& call, BodyNotes& notes) {
  Request& r = call.request;
  if (r.tools_json.empty() && call.tool_choice_json.empty()) return ToolPlan();
  CHORAL_TRY(ToolPlan plan, plan_tools({.tools = r.tools_json,
                                        .tool_choice = call.tool_choice_json,
                                        .parallel_tool_calls = call.parallel_tool_calls ? "true" : "false"},
                                       service.tool_setting(llm), notes.param));
  r.tools_json = plan.tools_json;
  if (plan.needs_showing) {
    r.messages_json = messages_with_tools(r.messages_json, plan);
    r.tools_json.clear();
  }
  if (plan.constraint.kind != StructuredOutput::Kind::kNone) {
    if (r.structured_output.kind != StructuredOutput::Kind::kNone) {
      notes.param = "tool_choice";
      return invalid_argument("'tool_choice' and 'response_format' both say what the answer looks like; give one of them");
    }
    r.structured_output = plan.constraint;
  }
  if (plan.keep_special_tokens) r.sampling.skip_special_tokens = false;
  return plan;
}

// It has a form from its first token on, which leaves no room for thoughts; text with calls in it has not.
bool begins_with_form(const Request& request, const ToolPlan& tools) {
  return tools.choice != ToolChoice::kAuto || request.structured_output != tools.constraint;
}

// Lets the form hold what follows the thoughts alone; false: it cannot.
bool put_form_behind_thoughts(LLM& llm, const ThoughtMarks& marks, const ToolPlan& tools, Request& request,
                              std::string& prompt_end) {
  if (!llm.structured_output_support().ok() || (marks.is_harmony && tools.only_arguments)) return false;
  // What holds calls in free text there lets thoughts through as they are.
  if (marks.is_harmony && !begins_with_form(request, tools)) return false;
  // What is wrong with it is said when it is submitted.
  const auto prompt = llm.apply_chat_template(request);
  if (!prompt.ok() || closes_thoughts(marks, *prompt)) return false;
  auto behind = behind_thoughts(request.structured_output, marks, opens_thoughts(marks, *prompt));
  if (!behind) return false;
  request.structured_output = *std::move(behind);
  prompt_end = opens_thoughts(marks, *prompt) ? marks.begins[0] : "";
  return true;
}

// Ends the thoughts in time. An answer that begins with its form has none.
Status limit_thoughts(LLM& llm, const ThoughtMarks* marks, const ToolPlan& tools, const ChatCall& call, Request& request,
                      BodyNotes& notes) {
  if (call.thinking_budget < 0) return {};
  notes.param = "thinking_budget";
  if (marks == nullptr)
    return unsupported("'thinking_budget': how this model marks its thoughts is not known; the server's --reasoning-parser says");
  CHORAL_TRY(const std::string prompt, llm.apply_chat_template(request));
  const bool goes_on = request.continue_final_message && leaves_thoughts_open(*marks, prompt);
  request.thought_limit = thought_limit(*marks, call.thinking_budget, tools.reads_calls());
  request.thought_limit.open = goes_on || opens_thoughts(*marks, prompt);
  notes.param.clear();
  return {};
}

}  // namespace

void put_earlier_turns(const LLM& llm, Request& request) {
  if (!request.messages_json.empty() && wants_harmony_turns(llm.info().tool_template))
    request.messages_json = harmony_turns(request.messages_json);
}

Result<AnswerPlan> plan_call(const Service& service, LLM& llm, ChatCall& call, BodyNotes& notes) {
  AnswerPlan plan;
  put_earlier_turns(llm, call.request);
  CHORAL_TRY(plan.tools, plan_call_tools(service, llm, call, notes));
  const ThoughtMarks* marks = service.thoughts();
  Request& r = call.request;
  if (marks == nullptr) {
    CHORAL_RETURN_IF_ERROR(limit_thoughts(llm, marks, plan.tools, call, r, notes));
    return plan;
  }
  const bool has_form = r.structured_output.kind != StructuredOutput::Kind::kNone;
  if (has_form && !put_form_behind_thoughts(llm, *marks, plan.tools, r, plan.prompt_end) && begins_with_form(r, plan.tools))
    return plan;
  plan.thoughts = marks;
  CHORAL_RETURN_IF_ERROR(limit_thoughts(llm, marks, plan.tools, call, r, notes));
  // The last message, which the answer goes on with, may be in the middle of them.
  if (r.continue_final_message) {
    const auto prompt = llm.apply_chat_template(r);
    if (prompt.ok() && leaves_thoughts_open(*marks, *prompt)) plan.prompt_end = marks->begins[0];
  }
  if (marks->is_special) r.sampling.skip_special_tokens = false;
  return plan;
}

AnswerPlan with_prompt(AnswerPlan plan, const LLM& llm, const LiveRequest& live) {
  constexpr size_t kTokens = 32;
  if (plan.thoughts == nullptr || !plan.prompt_end.empty()) return plan;
  const std::vector<int32_t> ids = live.streams.front().stream->prompt_token_ids();
  for (size_t i = ids.size() - std::min(ids.size(), kTokens); i < ids.size(); ++i) plan.prompt_end += llm.token_bytes(ids[i]);
  return plan;
}

}  // namespace choral::serve
