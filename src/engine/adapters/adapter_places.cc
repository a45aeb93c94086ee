#include <utility>

#include "choral/llm.h"

namespace choral {

std::shared_ptr<const AdapterPlaces::Folders> AdapterPlaces::now() const {
  const std::lock_guard lock(mutex_);
  return folders_;
}

void AdapterPlaces::set(std::shared_ptr<const Folders> folders) {
  const std::lock_guard lock(mutex_);
  folders_.swap(folders);
}

}  // namespace choral
