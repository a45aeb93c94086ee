// CHORAL_CHECK(condition, message): a broken promise inside our own code ends the process with file, line and message.
// Always on; for layer borders. CHORAL_DCHECK is for inner loops and exists only in debug builds.
// Never for input: what a user, a file or a peer got wrong is a Status (base/status.h).
#pragma once

#include <string_view>

namespace choral {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view message);
}  // namespace choral

#define CHORAL_CHECK(condition, message)                                 \
  do {                                                                   \
    if (!(condition)) [[unlikely]]                                       \
      ::choral::check_failed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)

#ifdef NDEBUG
#define CHORAL_DCHECK(condition, message) static_cast<void>(0)
#else
#define CHORAL_DCHECK(condition, message) CHORAL_CHECK(condition, message)
#endif
