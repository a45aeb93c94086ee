// A vector as clients want it: numbers, or the base64 of their little-endian bytes. For .cc files only. Pure.
#pragma once

#include <span>

#include "serve/openai/json.h"

namespace choral::serve {

Json number_list(std::span<const float> values, bool as_base64);

}  // namespace choral::serve
