// Anthropic's `system` and `messages` as a chat's messages: blocks of text, thoughts, calls and results. For .cc files only
// (serve/openai/json.h). Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "serve/openai/calls.h"
#include "serve/openai/json.h"

namespace choral::serve {

struct Conversation {
  Json messages = Json::array();
  bool ends_open = false;  // the answer goes on with its last message
};

// Moves them out of the body. An error names the place in the notes and in its words: 'messages[2].content[0]'.
Result<Conversation> read_conversation(Json& body, BodyNotes& notes);

}  // namespace choral::serve
