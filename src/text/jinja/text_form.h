// str() and repr() of a value, as Python prints them: True, None, 1.0, 1e+16, ['a', "it's"], {'k': 1}.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja/value.h"

namespace choral::text::jinja {

class Interpreter;

// too_large past max_string_bytes or when namespaces hold one another too deeply.
Result<std::string> to_text(Interpreter& interp, const Value& value);
Result<std::string> to_repr(Interpreter& interp, const Value& value);
std::string float_repr(double value);              // shortest digits that read back, with Python's exponent rules
std::string string_repr(std::string_view text);    // quoted
std::string_view cut_name(std::string_view name);  // its first 200 bytes or so, for a message
std::string name_repr(std::string_view name);      // that, quoted
std::string string_ascii(std::string_view text);   // quoted, all but ASCII escaped

}  // namespace choral::text::jinja
