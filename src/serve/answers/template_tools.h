// What a chat template tells of tools: in which form its family writes calls, by the template's marks, or by its turns where it
// knows no tools (families learn one form, and not all of their templates show it). Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "serve/answers/call_marks.h"

namespace choral::serve {

struct TemplateTools {
  ToolFormat format = ToolFormat::kJson;
  bool knows_format = false;  // the family is known, by its marks or by its turns; else the format is a guess
  bool shows_tools = false;   // to the model; else the prompt must (openai/shown_tools.h)
  bool shows_calls = false;   // that were made before, and what came of them
  std::string note = {};      // what was chosen for the model and may surprise; empty: nothing
};
TemplateTools tools_of_template(std::string_view chat_template);

}  // namespace choral::serve
