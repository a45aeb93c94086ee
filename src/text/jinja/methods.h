// The methods of text, dicts, lists, tuples and floats. Those that would change their value are absent by design.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/object.h"

namespace choral::text::jinja {

struct Method {
  std::string_view name;
  Function::Body body;
  bool linear = true;  // pays for reading value and arguments (Interpreter::pay); false: looks at less, and pays itself
};

std::span<const Method> text_methods();
std::span<const Method> container_methods(Kind kind);
const Method* find_method(const Value& value, std::string_view name);  // null when the type has none of this name
bool changes_its_value(const Value& value, std::string_view name);     // list.append, dict.pop, …

}  // namespace choral::text::jinja
