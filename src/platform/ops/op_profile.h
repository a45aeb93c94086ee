// Where a step's time goes: calls and seconds of each operator, filled while Context::profile points here.
// Engine thread only.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace choral::platform {

class OpProfile {
 public:
  struct Entry {
    std::string_view name;
    int64_t calls = 0;
    double seconds = 0;
  };

  void add(std::string_view name, double seconds);
  void reset() { entries_.clear(); }
  const std::vector<Entry>& entries() const { return entries_; }
  double seconds_of(std::string_view name) const;  // 0 when it was never called

 private:
  std::vector<Entry> entries_;
};

}  // namespace choral::platform
