// What a chat's body means for the prompt, the sampling and how the answer is read: its tools, and the model's thoughts. Pure on
// the caller's data; any thread.
#pragma once

#include "serve/openai/answer_plan.h"
#include "serve/openai/calls.h"
#include "serve/service/live_answer.h"
#include "serve/service/service.h"

namespace choral::serve {

// Changes the call's request to what it comes to. An error names the field in the notes.
Result<AnswerPlan> plan_call(const Service& service, LLM& llm, ChatCall& call, BodyNotes& notes);

// Earlier turns as the model's chat template takes them, where that is not how OpenAI writes them.
void put_earlier_turns(const LLM& llm, Request& request);

// The plan once the prompt is known.
AnswerPlan with_prompt(AnswerPlan plan, const LLM& llm, const LiveRequest& live);

}  // namespace choral::serve
