// What functions may be called. Pure; any thread.
#pragma once

#include <string_view>

namespace choral::serve {

// 1 to 128 letters, digits, "_", "-"; a model's text may have "." too.
bool is_function_name(std::string_view name, bool with_dots);
// Whether one may begin with it where nothing else tells a name from other text.
bool begins_function_name(char c);

}  // namespace choral::serve
