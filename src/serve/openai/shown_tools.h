// Tools where the chat template does not show them: described in the prompt's text, in the words of the models that learned tools
// from <tools> in their prompts (Hermes, Qwen), with the form in which the answer's calls are read. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "serve/tools/tools_request.h"

namespace choral::serve {

// The messages, as template_messages() gives them, with the plan's tools in the system's, or, as some templates take none, in the
// first of the user's. Calls that were made before become text in the form of calls, and what came of them the user's, unless the
// template shows them.
std::string messages_with_tools(std::string_view messages_json, const ToolPlan& plan);

}  // namespace choral::serve
