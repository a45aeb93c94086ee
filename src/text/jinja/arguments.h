// Binding of call arguments to the named parameters of a built-in, with Python's errors.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string_view>

#include "base/status.h"
#include "text/jinja/object.h"

namespace choral::text::jinja {

class Interpreter;

// Fills out[i] with the argument for names[i] or null. `required` first parameters must be given. An empty name is a
// parameter that has no name for the caller.
Status bind_arguments(std::string_view function, const Arguments& args, std::span<const std::string_view> names, size_t required,
                      const Value** out);

template <size_t N>
Result<std::array<const Value*, N>> bind(std::string_view function, const Arguments& args, const std::string_view (&names)[N],
                                         size_t required = 0) {
  std::array<const Value*, N> out{};
  CHORAL_RETURN_IF_ERROR(bind_arguments(function, args, names, required, out.data()));
  return out;
}
Status no_arguments(std::string_view function, const Arguments& args);

// Reads a bound argument of one type, or the default when it is not given; an error names the type that came.
Result<int64_t> int_argument(const Value* value, int64_t otherwise);
Result<std::string_view> text_argument(const Value* value, std::string_view otherwise);  // not given or None: otherwise
bool bool_argument(const Value* value, bool otherwise);

}  // namespace choral::text::jinja
