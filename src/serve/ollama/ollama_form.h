// Ollama's answers: an object as a whole, or a line of JSON for each piece. Pure.
#pragma once

#include <memory>
#include <string>

#include "serve/ollama/ollama_call.h"
#include "serve/openai/answer_form.h"

namespace choral::serve {

std::unique_ptr<AnswerForm> make_ollama_form(AnswerHead head, const OllamaCall& call, const AnswerPlan& plan);
std::unique_ptr<AnswerForm> make_ollama_embedding_form(AnswerHead head);

// Of a call that asks nothing.
std::string ollama_loaded_json(const AnswerHead& head, const OllamaCall& call);
// {"error": "…"}
std::string ollama_error_body(const ApiError& error);
// "2026-03-01T09:10:11Z"
std::string ollama_time(int64_t unix_s);

}  // namespace choral::serve
