// Anthropic's /v1/messages and what counts its tokens: a body said as a chat's. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "serve/openai/calls.h"

namespace choral::serve {

struct MessageCall {
  ChatCall chat;
  bool shows_thoughts = true;  // else blocks of thoughts are empty, as "display": "omitted" asks for
};

// `counts`: the body is only counted, and needs no max_tokens.
Result<MessageCall> read_message_call(std::string_view body, const SamplingParams& defaults, bool counts, BodyNotes& notes);
std::string message_schema();
std::string message_count_schema();

}  // namespace choral::serve
