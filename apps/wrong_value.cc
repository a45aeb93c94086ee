#include "wrong_value.h"

#include <fmt/core.h>

#include <regex>

namespace choral::apps {

std::string in_our_words(const std::string& said) {
  constexpr size_t kMostRead = 500;  // std::regex takes stack by the letter
  static const std::regex kKind(R"(Could not convert: (\S+) = (.*))"), kMissing(R"((\S+): \d+ required (.*) missing)"),
      kTwice(R"((\S+): At Most 1 required but received (\d+))");
  std::smatch parts;
  if (said.size() > kMostRead) return said;
  if (std::regex_match(said, parts, kKind))
    return fmt::format("{}: '{}' is not a number that it takes", parts.str(1), parts.str(2));
  if (std::regex_match(said, parts, kMissing)) return fmt::format("{0} wants a value: {0} {1}", parts.str(1), parts.str(2));
  if (std::regex_match(said, parts, kTwice)) return fmt::format("{} is given {} times; give it once", parts.str(1), parts.str(2));
  return said;
}

}  // namespace choral::apps
