// The name of something that is stored: nobody has had it, and nobody can guess it. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace choral::serve {

std::string fresh_id(std::string_view prefix);  // "resp_" and 48 hexadecimal digits

}  // namespace choral::serve
