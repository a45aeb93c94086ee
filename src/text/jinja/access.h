// obj.name, obj[key] and obj[a:b:c] in the immutable sandbox: an attribute is a method of the value's type or, for a
// namespace, macro or loop, what it offers; else the item of that name. Names that Python reserves and methods that change
// a list or dict give an undefined value that says so when used.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/jinja/methods.h"
#include "text/jinja/object.h"

namespace choral::text::jinja {

Result<Value> get_attribute(Interpreter& interp, const Value& object, std::string_view name);
Result<Value> get_item(Interpreter& interp, const Value& object, const Value& key);
Result<Value> get_slice(Interpreter& interp, const Value& object, const Value& start, const Value& stop, const Value& step);
bool is_callable(const Value& value);
// "a.b.0": the path language of map(attribute=…), sort(attribute=…) and the like.
Result<Value> get_path(Interpreter& interp, const Value& object, const Value& path, const Value* otherwise = nullptr);

}  // namespace choral::text::jinja
