// Fields that other servers know, that would change an answer, and that are not served here: an answer that is silently another
// one is worse than none. A value that changes nothing is passed over, since clients send all they have; any other is refused by
// name. For .cc files only (requests/json.h). Pure; any thread.
#pragma once

#include <span>
#include <string_view>

#include "requests/json.h"

namespace choral::requests {

struct UnservedField {
  std::string_view name;
  std::string_view neutral;       // the values that change nothing, as a list of JSON
  std::string_view instead = {};  // what to send; empty: nothing
};

std::span<const UnservedField> unserved_fields();
bool is_unserved(std::string_view name);
// Of such a field: fine where the value changes nothing, null included; else unsupported, with what to send instead.
Status check_unserved(std::string_view name, const Json& value);

}  // namespace choral::requests
