// /v1/responses, stateless: its body said as a chat's. Pure; any thread.
#pragma once

#include <string_view>

#include "serve/openai/calls.h"

namespace choral::serve {

struct ResponseCall {
  ChatCall chat;
  std::string echo_json;  // the members of the body that the answer repeats, an object
};

Result<ResponseCall> read_response_call(std::string_view body, const SamplingParams& defaults, BodyNotes& notes);
std::string response_schema();

}  // namespace choral::serve
