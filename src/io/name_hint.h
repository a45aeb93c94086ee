// The tail of a "no such name" message: "; the nearest is 'x'", or nothing. Bounded work, since the names come from hostile
// files.
#pragma once

#include <string>
#include <string_view>

#include "base/nearest_name.h"

namespace choral::io {

class NameHint {
 public:
  explicit NameHint(std::string_view typed) : nearest_(typed.substr(0, 256)) {}

  void consider(std::string_view candidate) { nearest_.consider(candidate); }
  std::string text() const;

 private:
  NearestName nearest_;
};

}  // namespace choral::io
