// Values as text: str() and repr() as Python prints them (True, None, 1.0, 1e+16, ['a', "it's"], {'k': 1}), JSON as
// Python's json.dumps writes it, and "…" % values and "…".format(…) as far as templates use them: values inserted as they
// print, and decimal integers. Widths, precisions and the like are refused by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja/object.h"

namespace choral::text::jinja {

// too_large past max_string_bytes or when namespaces hold one another too deeply.
Result<std::string> to_text(Interpreter& interp, const Value& value);
Result<std::string> to_repr(Interpreter& interp, const Value& value);
std::string string_repr(std::string_view text);    // quoted
std::string_view cut_name(std::string_view name);  // its first 200 bytes or so, for a message
std::string name_repr(std::string_view name);      // that, quoted

struct JsonStyle {
  bool ascii = false;                 // escape everything past ASCII
  std::optional<std::string> indent;  // one level; nothing: one line
};
Result<std::string> to_json(Interpreter& interp, const Value& value, const JsonStyle& style);
// %s, %d and %%. `values`: a tuple of values, or one value.
Result<Value> printf_format(Interpreter& interp, std::string_view format, const Value& values);
// {} and {name}, each also with :s or :d, and {{ }}.
Result<Value> str_format(Interpreter& interp, std::string_view format, const Arguments& args);
void append_json_text(std::string_view text, bool ascii, std::string* out);  // quoted

}  // namespace choral::text::jinja
