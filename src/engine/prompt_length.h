// The refusal of a prompt that does not fit. Clients that shorten prompts know it by OpenAI's words, which it uses, or by a code
// that a server gives it. So it can be told from other faults of a request. Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace choral::engine {

// `what`: "the prompt has 70 tokens". `answer_tokens`: of the model's length, that are kept for the answer.
Status prompt_too_long(std::string_view what, int32_t max_model_len, int32_t answer_tokens);
bool is_prompt_too_long(const Status& status);

}  // namespace choral::engine
