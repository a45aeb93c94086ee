#include "engine/adapters/counted_generations.h"

#include <algorithm>
#include <limits>

#include "base/status.h"

namespace choral::engine {

Result<int> next_generation(const std::string& name, int64_t last) {
  if (last >= std::numeric_limits<int>::max())
    return resource_exhausted("adapter '{}' has had {} generations, and there is no number for another one", name, last);
  return static_cast<int>(last) + 1;
}

CountedGenerations::Last& CountedGenerations::last_of(const std::string& name) {
  if (last_.size() >= most_names_ && !last_.contains(name)) {
    for (const auto& [forgotten, last] : last_) floor_ = std::max(floor_, last.number);
    last_.clear();
  }
  return last_.try_emplace(name, Last{floor_, ""}).first->second;
}

Result<int> CountedGenerations::number_of(const std::string& name, const std::string& digest) {
  const std::lock_guard lock(mutex_);
  Last& last = last_of(name);
  if (last.digest == digest) return last.number;
  CHORAL_TRY(const int next, next_generation(name, last.number));
  last = {next, digest};
  return next;
}

void CountedGenerations::go_on_from(const std::string& name, int number, const std::string& digest) {
  const std::lock_guard lock(mutex_);
  if (!last_.contains(name)) last_of(name) = {number, digest};
}

}  // namespace choral::engine
