// /v1/responses: its body said as a chat's, behind the responses that it goes on from. Pure; any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/openai/calls.h"

namespace choral::serve {

struct ResponseCall {
  ChatCall chat;
  std::string echo_json;  // the members of the body that the answer repeats, an object
  bool store = false;
  bool background = false;      // computed for nobody who waits; stored
  std::string previous_id;      // of the response that it goes on from; empty: none
  std::string input_json = {};  // where it is stored: {"input": [its own items, each with an id]}
};

// A stored response, as text: what it was asked, {"input": […]}, and what it answered, {"output": […], …}.
struct EarlierTurn {
  std::string input_json, response_json;
};

// What the server keeps; without one nothing is stored.
struct ResponseMemory {
  bool stores = false;
  // The turns up to and with that of the id, oldest first.
  std::function<Result<std::vector<EarlierTurn>>(const std::string& id)> earlier = {};
};

Result<ResponseCall> read_response_call(std::string_view body, const SamplingParams& defaults, BodyNotes& notes,
                                        const ResponseMemory& memory = {});
std::string response_schema();

}  // namespace choral::serve
