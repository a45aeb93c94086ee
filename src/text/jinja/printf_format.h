// Python's "…" % values, and the number formats that it shares with str.format.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja/value.h"

namespace choral::text::jinja {

class Interpreter;

// `values`: a tuple of values, a dict for %(name)s, or one value.
Result<std::string> printf_format(Interpreter& interp, std::string_view format, const Value& values);

struct NumberFormat {
  char type = 'g';  // e E f F g G
  int precision = 6;
  bool alternate = false;
};
std::string format_float(double value, const NumberFormat& format);  // without sign padding; may begin with '-'
std::string format_integer(uint64_t magnitude, char type);           // d x X o b, without sign or prefix

}  // namespace choral::text::jinja
