#include "serve/adapters/name_turns.h"

#include <utility>

namespace choral::serve {

NameTurns::Turn::Turn(NameTurns& turns, std::string name) : turns_(turns), name_(std::move(name)) {
  std::unique_lock lock(turns_.mutex_);
  ++turns_.waiting_;
  turns_.ended_.wait(lock, [&] { return !turns_.taken_.contains(name_); });
  --turns_.waiting_;
  turns_.taken_.insert(name_);
}

NameTurns::Turn::~Turn() {
  const std::lock_guard lock(turns_.mutex_);
  turns_.taken_.erase(name_);
  turns_.ended_.notify_all();
}

int NameTurns::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

}  // namespace choral::serve
