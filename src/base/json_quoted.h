// A text as a string of JSON. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace choral {

// With its quotes; bytes that are no UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

}  // namespace choral
