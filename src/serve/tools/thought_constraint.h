// The constraint on an answer that is thought about first: it holds what follows the thoughts. Pure; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "choral/types.h"
#include "serve/answers/thought_marks.h"

namespace choral::serve {

// `wanted`, behind thoughts. `open`: the prompt began them; else the model may, or may leave them out. Nothing where that cannot
// be said. Needs the library of grammars.
std::optional<StructuredOutput> behind_thoughts(const StructuredOutput& wanted, const ThoughtMarks& marks, bool open);

}  // namespace choral::serve
