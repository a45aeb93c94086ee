// A name of --tool-call-parser or --reasoning-parser that there is not. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::serve {

// invalid_argument, with the names there are and the nearest. `what`: "tool call", "reasoning".
Status no_such_parser(std::string_view what, std::string_view name, std::span<const std::string> names);

}  // namespace choral::serve
