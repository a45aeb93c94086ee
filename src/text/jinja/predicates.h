// The tests of the language (value is name …) by name.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/jinja/object.h"

namespace choral::text::jinja {

struct TestEntry {
  std::string_view name;
  Result<bool> (*body)(Interpreter&, const Value& subject, Arguments& args);
  bool linear = true;  // as of Method
};

const TestEntry* find_predicate(std::string_view name);

}  // namespace choral::text::jinja
