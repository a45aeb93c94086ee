#include "io/name_hint.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/nearest_name.h"
#include "base/printable.h"

namespace choral::io {

void NameHint::consider(std::string_view candidate) {
  constexpr size_t kMaxCandidates = 20'000;                                       // at 60 letters each: under 0.2 s
  const auto [shorter, longer] = std::minmax({typed_.size(), candidate.size()});  // the list form: values, not references
  if (candidates_.size() < kMaxCandidates && candidate.size() <= 256 && (longer - shorter) * 3 <= longer) {
    candidates_.emplace_back(candidate);
  }
}

std::string NameHint::text() const {
  const std::string near = nearest_name(typed_, candidates_);
  return near.empty() ? "" : fmt::format("; the nearest is '{}'", printable(near));
}

}  // namespace choral::io
