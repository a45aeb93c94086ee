#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace choral {

void check_failed(const char* file, int line, const char* condition, std::string_view message) {
  std::fprintf(stderr, "choral: internal error at %s:%d: %.*s (failed: %s). Please report this line.\n", file, line,
               static_cast<int>(message.size()), message.data(), condition);
  std::abort();
}

}  // namespace choral
