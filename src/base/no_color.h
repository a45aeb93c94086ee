// NO_COLOR (no-color.org), with which users ask every program for text without colours. Thread-safe as far as the environment is
// left alone.
#pragma once

#include <cstdlib>

namespace choral {

// Set, and not empty.
inline bool no_color() {
  const char* set = std::getenv("NO_COLOR");
  return set != nullptr && *set != '\0';
}

}  // namespace choral
