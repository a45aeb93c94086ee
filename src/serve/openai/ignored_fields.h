// Fields of other servers that are taken and change nothing that a client sees, each with the reason. Immutable; any thread.
#pragma once

#include <span>
#include <string_view>

namespace choral::serve {

struct IgnoredField {
  std::string_view name;
  std::string_view why;
};

std::span<const IgnoredField> ignored_fields();
bool is_ignored(std::string_view name);

}  // namespace choral::serve
