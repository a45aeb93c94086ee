// Earlier turns as gpt-oss's chat template takes them. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace choral::serve {

// The template reads what was thought from `thinking`, refuses it beside a text where there are calls, shows one call a message,
// and names a result by the call before it. So a turn with several calls becomes several, each with its result behind it, and a
// text said before calls follows what was thought.
bool wants_harmony_turns(std::string_view chat_template);
// `messages_json` is template_messages()'.
std::string harmony_turns(std::string_view messages_json);

}  // namespace choral::serve
