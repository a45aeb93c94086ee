// Errors as values. `Status` is "fine" or (code, message); `Result<T>` is a T or such a Status.
// A message says what is wrong, where, and what to do. A fine Status costs one null pointer.
// Codes are stable. Each has a name, which clients see, an HTTP status and an exit code; some share one.
// Thread-safety: values, like std::string.
#pragma once

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#define CHORAL_API [[gnu::visibility("default")]]

namespace choral {

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

CHORAL_API std::string_view code_name(Code code);  // "invalid_argument"
CHORAL_API int http_status(Code code);             // 400
CHORAL_API int exit_code(Code code);               // 2

class [[nodiscard]] CHORAL_API Status {
 public:
  Status() = default;
  Status(Code code, std::string message);  // code is not kOk
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

namespace detail {
[[noreturn]] CHORAL_API void value_of_error(const Status& status);  // prints it and aborts
}

template <class T>
class [[nodiscard]] Result {
 public:
  using Value = T;
  Result(T value) : value_(std::move(value)) {}
  template <class U>
  requires(std::is_convertible_v<U&&, T> && !std::is_same_v<std::remove_cvref_t<U>, Result> &&
           !std::is_same_v<std::remove_cvref_t<U>, Status> && !std::is_same_v<std::remove_cvref_t<U>, T>) Result(U&& value)
      : value_(std::forward<U>(value)) {}
  Result(Status status) : status_(std::move(status)) {
    if (status_.ok()) detail::value_of_error(Status(Code::kInternal, "a Result without value needs an error"));
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const& { return status_; }
  Status status() && { return std::move(status_); }

  // Asking an error for its value is a bug of the caller and ends the process with the error's text.
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
  void checked() const {
    if (!value_.has_value()) [[unlikely]]
      detail::value_of_error(status_);
  }
  std::optional<T> value_;
  Status status_;
};

}  // namespace choral
