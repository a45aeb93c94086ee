// What functions may be called. Pure; any thread.
#pragma once

#include <string_view>

namespace choral::serve {

// 1 to 128 letters, digits, "_", "-"; a model's text may have "." too.
bool is_function_name(std::string_view name, bool with_dots);

}  // namespace choral::serve
