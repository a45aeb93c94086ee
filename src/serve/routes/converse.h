// From the body of a conversation, in whichever API's words, to its answer. On reader threads.
#pragma once

#include <memory>
#include <utility>

#include "serve/anthropic/message_call.h"
#include "serve/http/error_response.h"
#include "serve/ollama/ollama_call.h"
#include "serve/openai/response_call.h"
#include "serve/routes/call_plan.h"
#include "serve/routes/generation.h"

namespace choral::serve {

// With how its answer is read.
template <class Call>
struct Planned {
  Call call;
  AnswerPlan plan;
};

inline ChatCall& chat_of(ChatCall& call) { return call; }
inline ChatCall& chat_of(ResponseCall& call) { return call.chat; }
inline ChatCall& chat_of(MessageCall& call) { return call.chat; }
inline ChatCall& chat_of(OllamaCall& call) { return call.chat; }

// An answer to a conversation, in whichever API's words. `start`: (call, head, plan, engine, exchange, live), once the engine
// took the request: before that a number in it may be any.
template <class Call, class Start>
void converse(Service& service, LLM& llm, const Exchange& exchange, std::string id, Result<Call> read, BodyNotes& notes,
              Start start) {
  service.warn(exchange, std::move(notes.warnings));
  if (!read.ok()) return exchange->respond(service.error(read.status(), notes.param));
  ChatCall& chat = chat_of(*read);
  if (!prepare(service, exchange, chat)) return;
  chat.request.id = std::move(id);
  // A prompt that no template wrote is answered in plain text.
  auto plan = chat.request.prompt ? Result<AnswerPlan>(AnswerPlan()) : plan_call(service, llm, chat, notes);
  if (!plan.ok()) return exchange->respond(service.error(plan.status(), notes.param));
  const auto planned = std::make_shared<Planned<Call>>(Planned<Call>{*std::move(read), *std::move(plan)});
  go_on(service, llm, exchange, chat_of(planned->call).request, [&service, planned, start](LLM& engine, const Exchange& e) {
    const ChatCall& c = chat_of(planned->call);
    LiveRequest live;
    if (!submit(service, engine, e, c.model, c.request, {}, live)) return;
    AnswerPlan told = with_prompt(planned->plan, engine, live);
    AnswerHead head = answer_head(service, c, live);
    start(planned->call, std::move(head), std::move(told), engine, e, std::move(live));
  });
}

}  // namespace choral::serve
