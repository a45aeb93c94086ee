#include "platform/ops/op_profile.h"

namespace choral::platform {

void OpProfile::add(std::string_view name, double seconds) {
  for (auto& entry : entries_) {
    if (entry.name != name) continue;
    ++entry.calls;
    entry.seconds += seconds;
    return;
  }
  entries_.push_back({name, 1, seconds});
}

double OpProfile::seconds_of(std::string_view name) const {
  for (const auto& entry : entries_) {
    if (entry.name == name) return entry.seconds;
  }
  return 0;
}

}  // namespace choral::platform
