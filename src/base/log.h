// CHORAL_LOG(kInfo, "loaded {} tensors", n): one line on stderr; never in kernels or per-token code.
// The level comes once from CHORAL_LOG_LEVEL (debug, info, warn, error, off; default warn). Thread-safe.
// say("{} tokens", n): text for the program's user on stderr, as it is. A stderr that is closed or full loses text and is
// no error: nothing here throws or ends the process.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "base/status.h"

namespace choral {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

// Whether CHORAL_LOG_LEVEL is one of them; another word logs as warn does.
Status check_log_level();
bool log_enabled(LogLevel level);
void write_log(LogLevel level, std::string_view line);
void write_stderr(std::string_view text);

template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  write_stderr(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace choral

#define CHORAL_LOG(level, ...)                                                    \
  do {                                                                            \
    if (::choral::log_enabled(::choral::LogLevel::level))                         \
      ::choral::write_log(::choral::LogLevel::level, ::fmt::format(__VA_ARGS__)); \
  } while (false)
