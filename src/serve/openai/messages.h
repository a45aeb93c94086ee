// OpenAI's `messages`, checked and put in the form that chat templates read: `developer` becomes system, a list of text parts one
// text, a tool call's arguments an object instead of JSON in a string, `reasoning` reasoning_content. For .cc files only
// (serve/openai/json.h). Pure; any thread.
#pragma once

#include <string>

#include "choral/status.h"
#include "serve/openai/json.h"

namespace choral::serve {

// As text. `size`: of the body that they are of, to which the arguments of calls add. An error names the place:
// 'messages[2].content'.
Result<std::string> template_messages(Json messages, ParsedSize& size);

}  // namespace choral::serve
