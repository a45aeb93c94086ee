#include "serve/answers/function_name.h"

#include <algorithm>
#include <cstddef>

#include "base/ascii.h"

namespace choral::serve {

bool is_function_name(std::string_view name, bool with_dots) {
  constexpr size_t kMaxBytes = 128;
  const auto fits = [with_dots](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '-' || (with_dots && c == '.');
  };
  return !name.empty() && name.size() <= kMaxBytes && std::all_of(name.begin(), name.end(), fits);
}

bool begins_function_name(char c) { return is_function_name({&c, 1}, false) && c != '-' && !is_digit(c); }

}  // namespace choral::serve
