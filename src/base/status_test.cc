#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <system_error>
#include <vector>

#include "base/system_error.h"

namespace choral {
namespace {

Result<int> parse_digit(char c) {
  if (c < '0' || c > '9') return invalid_argument("'{}' is no digit", c);
  return c - '0';
}

Result<int> parse_two(std::string_view text) {
  CHORAL_TRY(const int tens, parse_digit(text[0]));
  CHORAL_TRY(const int ones, parse_digit(text[1]));
  return tens * 10 + ones;
}

Status check_two(std::string_view text) {
  CHORAL_RETURN_IF_ERROR(parse_two(text).status());
  return {};
}

TEST(Status, FineIsEmpty) {
  const Status fine;
  EXPECT_TRUE(fine.ok());
  EXPECT_EQ(fine.code(), Code::kOk);
  EXPECT_EQ(fine.message(), "");
  EXPECT_EQ(Status().while_("loading").message(), "");
}

TEST(Status, ContextStandsBeforeTheMessage) {
  const Status error = corrupt("offset {} lies beyond the end", 7).while_("tensor a").while_("loading x");
  EXPECT_EQ(error.message(), "loading x: tensor a: offset 7 lies beyond the end");
  EXPECT_EQ(error.to_string(), "corrupt: loading x: tensor a: offset 7 lies beyond the end");
}

TEST(Status, CopiesAreIndependent) {
  const Status first = not_found("no model");
  Status second = first;
  second = std::move(second).while_("load");
  EXPECT_EQ(first.message(), "no model");
  EXPECT_EQ(second.message(), "load: no model");
}

TEST(Status, EveryCodeHasItsNumbers) {
  EXPECT_EQ(http_status(Code::kInvalidArgument), 400);
  EXPECT_EQ(http_status(Code::kNotFound), 404);
  EXPECT_EQ(http_status(Code::kResourceExhausted), 429);
  EXPECT_EQ(http_status(Code::kUnavailable), 503);
  EXPECT_EQ(exit_code(Code::kInvalidArgument), 2);
  EXPECT_EQ(exit_code(Code::kInternal), 1);
  EXPECT_EQ(code_name(Code::kTooLarge), "too_large");
}

TEST(Result, MacrosPassErrorsUp) {
  EXPECT_EQ(*parse_two("42"), 42);
  EXPECT_EQ(parse_two("4x").status().message(), "'x' is no digit");
  EXPECT_FALSE(check_two("x4").ok());
  EXPECT_TRUE(check_two("04").ok());
}

TEST(Result, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = std::move(made).value();
  EXPECT_EQ(*taken, 5);
}

TEST(ResultDeathTest, TheValueOfAnErrorEndsTheProcessWithItsText) {
  EXPECT_DEATH(static_cast<void>(parse_digit('z').value()), "'z' is no digit");
}

TEST(Status, NoNameDrivesATerminal) {
  const Status status = corrupt("no adapter is named '{}'", "a\033]0;owned\007\r\x9b\x7f\nchoral: error: forged");
  EXPECT_EQ(status.message(), "no adapter is named 'a\\x1b]0;owned\\x07\\x0d\\x9b\\x7f\\nchoral: error: forged'");
  EXPECT_EQ(Status(Code::kCorrupt, "x").while_("\033[2J").message(), "\\x1b[2J: x");
}

TEST(Status, MessagesKeepTheirScriptsAndLists) {
  const std::string text = "'Gedächtnis', '記憶', '🎶' have 2 problems\n  one\n  two";
  EXPECT_EQ(corrupt("{}", text).message(), text);
}

TEST(SystemError, HasACodeAndSaysWhatToDo) {
  const std::vector<std::pair<int, Code>> codes{{ENOENT, Code::kNotFound},          {EACCES, Code::kPermissionDenied},
                                                {EMFILE, Code::kResourceExhausted}, {ENOSPC, Code::kResourceExhausted},
                                                {EFBIG, Code::kResourceExhausted},  {EIO, Code::kInternal},
                                                {ELOOP, Code::kInvalidArgument}};
  for (const auto& [error, code] : codes) {
    const Status status = system_error(error, "cannot open x");
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message().rfind("cannot open x: " + std::generic_category().message(error), 0), 0u) << status.message();
  }
  EXPECT_NE(system_error(EMFILE, "x").message().find("ulimit -n"), std::string::npos);
  EXPECT_NE(system_error(ENOSPC, "x").message().find("make room or name another place"), std::string::npos);
}

}  // namespace
}  // namespace choral
