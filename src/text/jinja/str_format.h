// "…".format(…): {} {0} {name} {a.b[0]!r:>10}, with the sandbox's rules for what a field may reach.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja/object.h"

namespace choral::text::jinja {

Result<std::string> str_format(Interpreter& interp, std::string_view format, const Arguments& args);

}  // namespace choral::text::jinja
