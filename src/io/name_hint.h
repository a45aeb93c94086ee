// The tail of a "no such name" message: "; the nearest is 'x'", or nothing. Bounded work, since the names come from hostile
// files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace choral::io {

// Candidates enter one by one; those that cannot be near by their length alone are dropped at once.
class NameHint {
 public:
  explicit NameHint(std::string_view typed) : typed_(typed.substr(0, 256)) {}

  void consider(std::string_view candidate);
  std::string text() const;

 private:
  std::string typed_;
  std::vector<std::string> candidates_;
};

}  // namespace choral::io
