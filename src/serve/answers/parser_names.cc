#include "serve/answers/parser_names.h"

#include <fmt/format.h>

#include "base/nearest_name.h"
#include "base/printable.h"

namespace choral::serve {

Status no_such_parser(std::string_view what, std::string_view name, std::span<const std::string> names) {
  const std::string nearest = nearest_name(name, names);
  return invalid_argument("there is no {} parser {}{}; there are {}", what, quoted(name, 60),
                          nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest), fmt::join(names, ", "));
}

}  // namespace choral::serve
