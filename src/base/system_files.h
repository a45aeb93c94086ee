// What the kernel says of the machine and of this process, in files of /proc and /sys. They differ from kernel to kernel and from
// container to container, so whatever stands there is believed only if it reads as expected: a file that is absent, garbage or
// endless gives nothing. The root is "/" but for tests, which lay out machines that nobody has. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace choral {

class SystemFiles {
 public:
  // `root` stands before every path that is asked for, which begins with a slash.
  explicit SystemFiles(std::string root = "") : root_(std::move(root)) {}

  static constexpr size_t kMostBytes = size_t{1} << 20;

  std::string path(std::string_view file) const;
  // Of a longer file the first kMostBytes; empty when it cannot be read.
  std::string text(std::string_view file) const;
  std::string first_line(std::string_view file) const;
  // A file that is one whole number; none for "max" or one beyond int64.
  std::optional<int64_t> number(std::string_view file) const;
  // In a file of lines "key: value" or "key value", what stands behind the first such key, without blanks around it.
  std::string value_of(std::string_view file, std::string_view key) const;
  std::optional<int64_t> number_of(std::string_view file, std::string_view key) const;

 private:
  std::string root_;
};

// The whole number that a text begins with, if a blank or its end comes next.
std::optional<int64_t> leading_number(std::string_view text);

}  // namespace choral
