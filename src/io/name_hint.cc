#include "io/name_hint.h"

#include <fmt/core.h>

#include "base/printable.h"

namespace choral::io {

std::string NameHint::text() const {
  return nearest_.best().empty() ? "" : fmt::format("; the nearest is '{}'", printable(nearest_.best()));
}

}  // namespace choral::io
