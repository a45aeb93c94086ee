// The constraint that holds an answer to tool calls: a structural tag in the form that the model's family writes.
// Thread-safety: pure function.
#pragma once

#include <span>

#include "choral/types.h"
#include "serve/tools/tools_request.h"

namespace choral::serve {

// `required`: the answer is calls and nothing else; otherwise free text in which a call, once begun, must be one of these tools
// with its schema. kNone where the family's calls have no marker that tells them from free text.
StructuredOutput tool_constraint(ToolFormat format, std::span<const Tool> tools, bool required, bool parallel);

}  // namespace choral::serve
