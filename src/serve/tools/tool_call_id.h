// Ids of tool calls: "call_" and 24 letters and digits, as OpenAI's; nine of them alone for Mistral's templates, which refuse
// others when the id comes back. Unique for practical purposes, not secret. Thread-safety: that of the generator.
#pragma once

#include <random>
#include <string>

#include "serve/answers/call_marks.h"

namespace choral::serve {

std::string make_tool_call_id(ToolFormat format, std::mt19937_64& generator);
// With a generator of each thread's own.
std::string make_tool_call_id(ToolFormat format);

}  // namespace choral::serve
