// How llama.cpp's own routes answer: /completion and /infill with a result a completion, or events that each say `stop`;
// /embedding with a list. For .cc files only (serve/openai/json.h). A form serves one request; not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serve/native/native_call.h"
#include "serve/openai/answer_form.h"

namespace choral::serve {

struct NativeFormFacts {
  std::string model;
  int max_model_len = 0;
  PromptTokens prompts;              // each one's
  std::vector<int32_t> adapter_ids;  // llama.cpp's numbers of the request's adapters; -1: it has none
  TokenText token_text;
  std::function<std::string(const std::vector<int32_t>& ids)> prompt_text;
};

std::unique_ptr<AnswerForm> make_native_form(const NativeCall& call, NativeFormFacts facts);
std::unique_ptr<AnswerForm> make_native_embedding_form(int norm);

}  // namespace choral::serve
