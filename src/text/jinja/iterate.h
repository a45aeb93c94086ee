// Iteration over anything that Python would iterate: items of lists and tuples, keys of dicts, characters of text, and
// the iterable objects. Undefined is empty.
#pragma once

#include <memory>

#include "base/status.h"
#include "text/jinja/object.h"

namespace choral::text::jinja {

bool is_iterable(const Value& value);
std::optional<int64_t> length_of(const Value& value);  // what len() gives; nothing where it raises
// A one-shot iterator gives itself, with what it has left.
Result<std::shared_ptr<Iterator>> iterate(Interpreter& interp, const Value& value);
// All elements; an iterator is read to its end. Shared, not copied, for lists and tuples.
Result<std::shared_ptr<const Values>> elements_of(Interpreter& interp, const Value& value);

}  // namespace choral::text::jinja
