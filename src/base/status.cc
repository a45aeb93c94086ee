#include "base/status.h"

#include <array>

#include "base/printable.h"

namespace choral {
namespace {

struct CodeFacts {
  std::string_view name;
  int http;
  int exit;
};

// In the order of Code. Exit codes: 1 = our fault, 2 = usage, 3.. = the input; listed in docs/cli.md and `choral --help`.
constexpr std::array<CodeFacts, 13> kFacts{{
    {"ok", 200, 0},
    {"invalid_argument", 400, 2},
    {"not_found", 404, 3},
    {"already_exists", 409, 2},
    {"corrupt", 422, 4},
    {"unsupported", 501, 5},
    {"too_large", 413, 6},
    {"resource_exhausted", 429, 7},
    {"unavailable", 503, 8},
    {"cancelled", 499, 9},
    {"deadline_exceeded", 408, 10},
    {"permission_denied", 403, 11},
    {"internal", 500, 1},
}};

const CodeFacts& facts(Code code) { return kFacts.at(static_cast<size_t>(code)); }

}  // namespace

std::string_view code_name(Code code) { return facts(code).name; }
int http_status(Code code) { return facts(code).http; }
int exit_code(Code code) { return facts(code).exit; }

Status::Status(Code code, std::string message) {
  CHORAL_CHECK(code != Code::kOk, "an error needs a code");
  rep_ = std::make_unique<Rep>(Rep{code, terminal_text(message)});
}

Status::Status(const Status& other) : rep_(other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) rep_ = other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr;
  return *this;
}

const std::string& Status::message() const {
  static const std::string kEmpty;
  return rep_ ? rep_->message : kEmpty;
}

std::string Status::to_string() const { return ok() ? "ok" : fmt::format("{}: {}", code_name(code()), message()); }

Status Status::while_(std::string_view context) && {
  if (rep_) rep_->message = fmt::format("{}: {}", terminal_text(context), rep_->message);
  return std::move(*this);
}

void detail::value_of_error(const Status& status) {
  check_failed(__FILE__, __LINE__, "Result::ok()", "the value of an error was asked for: " + status.to_string());
}

}  // namespace choral
