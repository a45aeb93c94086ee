// What the operating system refused, as a Status: the code that fits the error, its own words, and what to do where that is
// known. Thread-safe.
#pragma once

#include <string_view>

#include "base/status.h"

namespace choral {

// `what` is what was tried, with the name of the thing: "cannot open model.gguf". `error` is errno's value.
Status system_error(int error, std::string_view what);

}  // namespace choral
