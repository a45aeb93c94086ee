// OpenAI's `metadata`, which an object that is stored gives back. For .cc files only (serve/openai/json.h). Pure.
#pragma once

#include <string_view>

#include "serve/openai/json.h"

namespace choral::serve {

// It is an object of a few short texts.
Status check_metadata(std::string_view field, const Json& metadata);

}  // namespace choral::serve
