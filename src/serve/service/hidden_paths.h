// Where adapters lie, to be left out of what clients are told: error messages name paths. As many as there are, a message costs
// by its own length. A value; any thread.
#pragma once

#include <bitset>
#include <string>
#include <string_view>
#include <vector>

#include "choral/llm.h"

namespace choral::serve {

class HiddenPaths {
 public:
  HiddenPaths() = default;
  explicit HiddenPaths(AdapterNames adapters);

  // Puts `instead` where the text has one of the paths, the longest where several begin.
  std::string hide(std::string_view text, std::string_view instead) const;

 private:
  size_t longest_at_begin(std::string_view text) const;

  AdapterNames adapters_;                // whose paths these are
  std::vector<std::string_view> paths_;  // sorted
  std::bitset<256> first_letters_;
};

}  // namespace choral::serve
