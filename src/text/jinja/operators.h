// The operators of the language on values, with Python's results and Python's words when two types do not fit.
#pragma once

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace choral::text::jinja {

class Interpreter;

bool truth(const Value& value);
Result<Value> binary(Interpreter& interp, Operator op, const Value& a, const Value& b);
Result<Value> negate(const Value& value);
Result<Value> positive(const Value& value);
Result<bool> compare(Interpreter& interp, Operator op, const Value& a, const Value& b);  // ==, <, in, …
Result<bool> less(Interpreter& interp, const Value& a, const Value& b);
Result<bool> contains(Interpreter& interp, const Value& container, const Value& item);
Result<Value> repeat(Interpreter& interp, const Value& what, int64_t times);

// invalid_argument with the undefined value's message when the value is undefined.
Status check_defined(const Value& value);

}  // namespace choral::text::jinja
