// What is said of fields that nobody knows: each time where one client hears it, and once where it is kept. Names are untrusted:
// they are printed in ASCII, cut, and the first few are remembered. Not thread-safe.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>

namespace choral::requests {

// "the field 'temprature' is not known and has no effect; did you mean 'temperature'?"; without the middle where it is an error.
// `known`: the names there are.
enum class UnknownField { kHasNoEffect, kIsAnError };
std::string unknown_field_text(std::string_view name, std::span<const std::string> known, UnknownField what);

inline constexpr std::string_view kMoreUnknownFields = "there are more fields that are not known; they have no effect either";

class UnknownFieldLog {
 public:
  enum class Say { kNothing, kIt, kMore };
  // What is to be said of a field that was met, or of what was said of it: it, if it is one of the first few and new; or that
  // there are more, once.
  Say meet(std::string_view field);

 private:
  std::set<std::string> told_;
};

}  // namespace choral::requests
