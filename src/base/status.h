// Inside the house: factories for errors and the two macros that pass them up. The types are in include/choral/status.h.
// Rule: the user, a file or a peer is wrong -> Status; we are wrong -> CHORAL_CHECK.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

#include "base/check.h"
#include "choral/status.h"

namespace choral {

// One factory for each code; the message is a fmt string checked at compile time.
#define CHORAL_ERROR_FACTORY(name, code)                                   \
  template <class... Args>                                                 \
  Status name(fmt::format_string<Args...> format, Args&&... args) {        \
    return Status(code, fmt::format(format, std::forward<Args>(args)...)); \
  }
CHORAL_ERROR_FACTORY(invalid_argument, Code::kInvalidArgument)
CHORAL_ERROR_FACTORY(not_found, Code::kNotFound)
CHORAL_ERROR_FACTORY(already_exists, Code::kAlreadyExists)
CHORAL_ERROR_FACTORY(corrupt, Code::kCorrupt)
CHORAL_ERROR_FACTORY(unsupported, Code::kUnsupported)
CHORAL_ERROR_FACTORY(too_large, Code::kTooLarge)
CHORAL_ERROR_FACTORY(resource_exhausted, Code::kResourceExhausted)
CHORAL_ERROR_FACTORY(unavailable, Code::kUnavailable)
CHORAL_ERROR_FACTORY(cancelled, Code::kCancelled)
CHORAL_ERROR_FACTORY(deadline_exceeded, Code::kDeadlineExceeded)
CHORAL_ERROR_FACTORY(permission_denied, Code::kPermissionDenied)
CHORAL_ERROR_FACTORY(internal_error, Code::kInternal)
#undef CHORAL_ERROR_FACTORY

}  // namespace choral

#define CHORAL_CONCAT_INNER(a, b) a##b
#define CHORAL_CONCAT(a, b) CHORAL_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expr` (a Status) is an error.
#define CHORAL_RETURN_IF_ERROR(expr) CHORAL_RETURN_IF_ERROR_INNER(CHORAL_CONCAT(choral_status_, __LINE__), expr)
#define CHORAL_RETURN_IF_ERROR_INNER(status, expr)                     \
  do {                                                                 \
    if (::choral::Status status = (expr); !status.ok()) return status; \
  } while (false)

// CHORAL_TRY(auto x, f()): x = the value of f(), or the enclosing function returns its error.
#define CHORAL_TRY(declaration, expr) CHORAL_TRY_INNER(CHORAL_CONCAT(choral_result_, __LINE__), declaration, expr)
#define CHORAL_TRY_INNER(result, declaration, expr)    \
  auto result = (expr);                                \
  if (!result.ok()) return std::move(result).status(); \
  declaration = std::move(result).value()
