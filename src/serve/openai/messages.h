// OpenAI's `messages`, checked and put in the form that chat templates read: `developer` becomes system, a list of text parts one
// text, a tool call's arguments an object instead of JSON in a string. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "choral/status.h"

namespace choral::serve {

// `messages_json`: a JSON array, of values that a bounded reader has taken. An error names the place: 'messages[2].content'.
Result<std::string> template_messages(std::string_view messages_json);

}  // namespace choral::serve
