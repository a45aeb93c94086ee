// What the language does with values: operators, and obj.name, obj[key] and obj[a:b:c], with Python's results, and Python's
// words when types do not fit. Subscripts are those of the immutable sandbox: an attribute is a method of the value's type
// or, for a namespace, macro or loop, what it offers; else the item of that name. Names that Python reserves and methods
// that change a list or dict give an undefined value that says so when used.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/object.h"

namespace choral::text::jinja {

bool truth(const Value& value);
Status check_defined(const Value& value);  // invalid_argument with the undefined value's message
Result<Value> binary(Interpreter& interp, Operator op, const Value& a, const Value& b);
Result<Value> negate(const Value& value);
Result<bool> compare(Interpreter& interp, Operator op, const Value& a, const Value& b);  // ==, <, in, …

Result<Value> get_attribute(Interpreter& interp, const Value& object, std::string_view name);
Result<Value> get_own_attribute(Interpreter& interp, const Value& object, std::string_view name);  // never an item
Result<Value> get_item(Interpreter& interp, const Value& object, const Value& key);
Result<Value> get_slice(Interpreter& interp, const Value& object, const Value& start, const Value& stop, const Value& step);
// "a.b.0": the path language of map(attribute=…), sort(attribute=…) and the like.
Result<Value> get_path(Interpreter& interp, const Value& object, const Value& path);

}  // namespace choral::text::jinja
