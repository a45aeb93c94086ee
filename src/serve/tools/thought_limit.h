// A limit on what an answer thinks, in the words of the model's family. Pure; any thread.
#pragma once

#include <cstdint>

#include "choral/types.h"
#include "serve/answers/thought_marks.h"

namespace choral::serve {

// `may_call`: the answer may call tools. Whether the prompt opened thoughts is for the caller to say.
ThoughtLimit thought_limit(const ThoughtMarks& marks, int32_t max_tokens, bool may_call);

}  // namespace choral::serve
