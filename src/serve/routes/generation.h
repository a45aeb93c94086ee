// What the routes that generate have in common: from a body that was read to a request in flight. On reader threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serve/openai/answer_form.h"
#include "serve/openai/calls.h"
#include "serve/service/service.h"

namespace choral::serve {

// As the client named it, or the base.
std::string model_of(const Service& service, const std::string& model);
AnswerHead answer_head(const Service& service, std::string id, const std::string& model);
// Of what the engine took.
AnswerHead answer_head(const Service& service, const CallHead& call, const LiveRequest& live);
// "chatcmpl-…": by the request's own id, which its headers tell.
std::string answer_id(std::string_view prefix, const Exchange& exchange);
TokenText token_text(const LLM& llm);
PromptTokens prompts_of(const LiveRequest& live);

// What a body needs before its prompts are submitted: its adapters by their names. False: the request is answered.
bool prepare(Service& service, const Exchange& exchange, CallHead& head);
// Gives what is left of the request to the engine: `prompts`, or its own. False: the exchange is answered, with why it did not.
bool submit(Service& service, LLM& llm, const Exchange& exchange, const std::string& model, Request request,
            std::vector<Prompt> prompts, LiveRequest& live);
// Does the rest here, or where it may wait for the request's grammar.
void go_on(Service& service, LLM& llm, const Exchange& exchange, const Request& request, Service::Work rest);

// Of the model that the call names. Null: the exchange is answered with why there is none.
std::shared_ptr<const Vocabulary> vocabulary_of(Service& service, LLM& llm, const Exchange& exchange, const CallHead& head);
// Of a text: nobody counts more of a prompt that is too long.
inline size_t most_tokens_read(const LLM& llm) {
  constexpr size_t kContexts = 4;
  return kContexts * static_cast<size_t>(llm.info().max_model_len);
}

}  // namespace choral::serve
