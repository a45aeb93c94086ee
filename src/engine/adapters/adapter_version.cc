#include "engine/adapters/adapter_version.h"

namespace choral::engine {

void VersionEnds::add() {
  ++count_;
  const std::lock_guard lock(mutex_);
  if (wake_) wake_();
}

void VersionEnds::set_wake(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

}  // namespace choral::engine
