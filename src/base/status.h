// Errors as values. `Status` is "fine" or (code, message); `Result<T>` is a T or such a Status.
// Rule of the house: the user, a file or a peer is wrong -> Status; we are wrong -> CHORAL_CHECK.
// A message says what is wrong, where, and what to do. Context is added on the way up: `.while_("loading adapter x")`.
// A fine Status costs one null pointer. Thread-safety: values, like std::string.
#pragma once

#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace choral {

// Stable: names go to clients (HTTP `code`), numbers to exit codes; see code_name, http_status, exit_code.
enum class Code {
  kOk = 0,
  kInvalidArgument,    // a field, flag or option is wrong
  kNotFound,           // a file, model, adapter or name does not exist
  kAlreadyExists,      // a name is taken
  kCorrupt,            // a file or message breaks its own format
  kUnsupported,        // well-formed, but this build cannot do it
  kTooLarge,           // over a stated limit
  kResourceExhausted,  // queue, memory or slots are full now
  kUnavailable,        // loading, draining or dead
  kCancelled,          // the caller gave up
  kDeadlineExceeded,   // a time limit passed
  kPermissionDenied,
  kInternal,  // a bug or a failing machine
};

std::string_view code_name(Code code);  // "invalid_argument"
int http_status(Code code);             // 400
int exit_code(Code code);               // 2

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message);
  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ ? rep_->code : Code::kOk; }
  const std::string& message() const;
  std::string to_string() const;  // "corrupt: …"

  // Puts "context: " before the message; does nothing to a fine Status.
  Status while_(std::string_view context) &&;

 private:
  struct Rep {
    Code code;
    std::string message;
  };
  std::unique_ptr<Rep> rep_;
};

// One factory for each code; the message is a fmt string checked at compile time.
#define CHORAL_ERROR_FACTORY(name, code)                                    \
  template <class... Args>                                                  \
  Status name(fmt::format_string<Args...> format, Args&&... args) {         \
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

template <class T>
class [[nodiscard]] Result {
 public:
  using Value = T;
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { CHORAL_CHECK(!status_.ok(), "a Result without value needs an error"); }

  bool ok() const { return value_.has_value(); }
  const Status& status() const& { return status_; }
  Status status() && { return std::move(status_); }

  T& value() & { return checked(), *value_; }
  const T& value() const& { return checked(), *value_; }
  T&& value() && { return checked(), std::move(*value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  Result while_(std::string_view context) && {
    if (!ok()) status_ = std::move(status_).while_(context);
    return std::move(*this);
  }

 private:
  void checked() const { CHORAL_CHECK(value_.has_value(), status_.message()); }
  std::optional<T> value_;
  Status status_;
};

}  // namespace choral

#define CHORAL_CONCAT_INNER(a, b) a##b
#define CHORAL_CONCAT(a, b) CHORAL_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expr` (a Status) is an error.
#define CHORAL_RETURN_IF_ERROR(expr)                               \
  do {                                                             \
    if (::choral::Status choral_status_ = (expr); !choral_status_.ok()) return choral_status_; \
  } while (false)

// CHORAL_TRY(auto x, f()): x = the value of f(), or the enclosing function returns its error.
#define CHORAL_TRY(declaration, expr) CHORAL_TRY_INNER(CHORAL_CONCAT(choral_result_, __LINE__), declaration, expr)
#define CHORAL_TRY_INNER(result, declaration, expr) \
  auto result = (expr);                             \
  if (!result.ok()) return std::move(result).status(); \
  declaration = std::move(result).value()
