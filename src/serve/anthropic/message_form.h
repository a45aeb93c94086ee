// Anthropic's message objects, and the events that tell of one growing.
#pragma once

#include <memory>

#include "serve/anthropic/message_call.h"
#include "serve/openai/answer_form.h"

namespace choral::serve {

std::unique_ptr<AnswerForm> make_message_form(AnswerHead head, const MessageCall& call, AnswerPlan plan, TokenText token_text);

}  // namespace choral::serve
